"""The low-risk form of a plan: stock DDP, with other bucket sizes."""

from __future__ import annotations

import inspect
from typing import Any

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from augury.core.plan import Plan
from augury.runtime.say import say
from augury.runtime.torch_names import matched, own_parameters

_MIB = 1 << 20


def planned_options(plan: Plan, wrapped: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What DistributedDataParallel is to be made with."""
    num_ranks = distributed.get_world_size()
    reason = None
    if plan.num_ranks != num_ranks:
        reason = f"it is for {plan.num_ranks} ranks, here are {num_ranks}"
    else:
        here = [name for name, p in own_parameters(wrapped).items() if p.requires_grad]
        if matched(here, [gradient.name for gradient in plan.problem.gradients]) is None:
            reason = f"its gradients are not those of {type(wrapped).__name__}"
    caps = [size_bytes / _MIB for size_bytes in plan.bucket_caps_bytes]
    takes_list = "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel).parameters
    if reason is not None:
        told = f"the plan is not followed: {reason}"
    else:
        others = {k: v for k, v in options.items() if not k.startswith("bucket_cap_mb")}
        if len(caps) > 1 and takes_list:
            options = {**others, "bucket_cap_mb_list": caps}
        else:
            options = {**others, "bucket_cap_mb": caps[-1]}
        shown = ", ".join(f"{cap:.3g}" for cap in caps[:8])
        told = f"follows the plan: buckets of {shown}{', ...' if len(caps) > 8 else ''} MiB"
    if distributed.get_rank() == 0:
        say(told)
    return options
