"""Gradient buckets of DistributedDataParallel: parameters, bucket members, order, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from augury.capture.torch.distributed_calls import tensor_bytes
from augury.capture.torch.gradient_order import reduced_parameters
from augury.core.trace.rank_record import Parameter, RecordedBucket, RecordedDdp

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

_NO_LIMIT_BYTES = (1 << 63) - 1


def ddp_facts(
    model: DistributedDataParallel, name_of: dict[int, str], ready_order: list[int]
) -> RecordedDdp:
    """Returns the parameters and buckets of a model, as DDP logs them. ``name_of`` gives the names
    of parameters by ``id``, ``ready_order`` the observed order of gradients."""
    logged = model._get_ddp_logging_data()
    parameters = reduced_parameters(model)
    rebuilt_sizes = _integers(logged.get("rebuilt_bucket_sizes"))
    if logged.get("has_rebuilt_buckets") and rebuilt_sizes:
        sizes = rebuilt_sizes
        members = [
            _integers(indices, separator=None)
            for indices in logged.get("rebuilt_per_bucket_param_indices", "").split(",")
        ]
    else:
        sizes = _integers(logged.get("bucket_sizes"))
        members = _initial_buckets(model, parameters, sizes)
    config = getattr(model, "_bucket_config", None)
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
            # There are fewer members than sizes if the parameters of buckets are unknown.
            for size_bytes, indices in zip(sizes, members, strict=False)
        ],
        ready_order=_integers(logged.get("prev_iteration_grad_ready_order_indices")) or ready_order,
        bucket_cap_bytes=int(logged["bucket_cap_bytes"]),
        first_bucket_cap_bytes=None if config is None else config.first_bucket_bytes_cap,
        gradient_as_bucket_view=bool(model.gradient_as_bucket_view),
        find_unused_parameters=bool(model.find_unused_parameters),
    )


def _initial_buckets(
    model: DistributedDataParallel, parameters: list[Any], sizes: list[int]
) -> list[list[int]]:
    """Returns the indices of the parameters of each bucket, before DDP rebuilds its buckets.

    Until then DDP reports only the sizes of buckets. So the assignment is computed with all limits
    that DDP may have used, until the sizes agree; the list is empty if they never do."""
    from torch.distributed import _DEFAULT_FIRST_BUCKET_BYTES, _compute_bucket_assignment_by_size

    cap = model.bucket_bytes_cap
    config = getattr(model, "_bucket_config", None)
    configured = list(getattr(config, "per_bucket_bytes_caps", ()))
    for limits in (configured, [_NO_LIMIT_BYTES], [cap], [_DEFAULT_FIRST_BUCKET_BYTES, cap]):
        if not limits:
            continue
        buckets, _ = _compute_bucket_assignment_by_size(parameters, limits, [])
        assigned = [list(bucket) for bucket in reversed(buckets)]
        if [sum(tensor_bytes(parameters[i]) for i in bucket) for bucket in assigned] == sizes:
            return assigned
    return []


def _integers(text: Any, separator: str | None = ",") -> list[int]:
    """Returns the integers of a logged list; None separates at white space."""
    return [int(number) for number in text.split(separator)] if text else []
