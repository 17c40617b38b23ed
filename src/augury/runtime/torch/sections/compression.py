"""Section ``compression``: DDP's buckets travel in half precision."""

from __future__ import annotations

from typing import Any

from torch import distributed

from augury.core.plan.sections import CompressionSection
from augury.runtime.torch.sections.precision import DTYPES


def register_compression(model: Any, reducer: Any, section: CompressionSection) -> None:
    """Lets a reducer of the model send its buckets in half precision.

    Torch's own hooks ask for other backends than gloo, which sums both formats."""
    dtype, group = DTYPES[section.dtype], model.process_group

    def hook(_state: None, bucket: distributed.GradBucket) -> Any:
        buffer = bucket.buffer()
        if buffer.element_size() <= dtype.itemsize:
            sent = buffer.div_(group.size())
        else:
            sent = buffer.div(group.size()).to(dtype)

        def received(future: Any) -> Any:
            buffer.copy_(future.value()[0])
            return buffer

        work = distributed.all_reduce(sent, group=group, async_op=True)
        assert work is not None
        return work.get_future().then(received)

    distributed._register_comm_hook(reducer, None, hook)
