"""Gradient buckets of DistributedDataParallel: parameters, bucket members, order, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from augury.capture.torch.distributed_calls import tensor_bytes
from augury.core.trace.rank_record import Parameter, RecordedBucket, RecordedDdp

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

MAXIMUM = (1 << 63) - 1


def ddp_facts(model: DistributedDataParallel, name_of: dict[int, str]) -> RecordedDdp:
    logged = model._get_ddp_logging_data()
    parameters = [parameter for parameter in model._module_parameters if parameter.requires_grad]
    rebuilt = _numbers(logged.get("rebuilt_bucket_sizes"))
    if logged.get("has_rebuilt_buckets") and rebuilt:
        members = [
            _numbers(one, between=None)
            for one in logged.get("rebuilt_per_bucket_param_indices", "").split(",")
        ]
        sizes = rebuilt
    else:
        sizes = _numbers(logged.get("bucket_sizes"))
        members = _first_assignment(model, parameters, sizes)
    caps = getattr(model, "_bucket_config", None)
    return RecordedDdp(
        group=model.process_group.group_name,
        parameters=[
            Parameter(
                name=name_of.get(id(parameter), f"#{i}"),
                size_bytes=tensor_bytes(parameter),
                dtype=str(parameter.dtype).removeprefix("torch."),
            )
            for i, parameter in enumerate(parameters)
        ],
        buckets=[
            RecordedBucket(size_bytes=size_bytes, parameters=indices)
            for size_bytes, indices in zip(sizes, members, strict=False)
        ],
        ready_order=_numbers(logged.get("prev_iteration_grad_ready_order_indices")),
        bucket_cap_bytes=int(logged["bucket_cap_bytes"]),
        first_bucket_cap_bytes=None if caps is None else caps.first_bucket_bytes_cap,
        gradient_as_bucket_view=bool(model.gradient_as_bucket_view),
        find_unused_parameters=bool(model.find_unused_parameters),
    )


def _first_assignment(
    model: DistributedDataParallel, parameters: list[Any], sizes: list[int]
) -> list[list[int]]:
    """Returns the parameters of each bucket before DDP rebuilds them. DDP then reports only sizes,
    so its assignment is repeated with each limit that it may have used, until the sizes agree.
    Empty if none agrees."""
    from torch.distributed import _DEFAULT_FIRST_BUCKET_BYTES, _compute_bucket_assignment_by_size

    cap = model.bucket_bytes_cap
    caps = getattr(model, "_bucket_config", None)
    listed = list(getattr(caps, "per_bucket_bytes_caps", ()))
    for limits in (listed, [MAXIMUM], [cap], [_DEFAULT_FIRST_BUCKET_BYTES, cap]):
        if not limits:
            continue
        buckets, _ = _compute_bucket_assignment_by_size(parameters, limits, [])
        assigned = [list(bucket) for bucket in reversed(buckets)]
        if [sum(tensor_bytes(parameters[i]) for i in bucket) for bucket in assigned] == sizes:
            return assigned
    return []


def _numbers(text: Any, between: str | None = ",") -> list[int]:
    return [int(number) for number in text.split(between)] if text else []
