"""All ranks follow a plan, and the same one, or none does."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import distributed

from augury.core.plan import Plan
from augury.core.plan_file import encode_plan


def agree(reason: str | None, plan: Plan | None) -> str | None:
    """The first rank's reason to stay out that has one. To be called by all ranks."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return "torch.distributed is not initialised"
    content = b"" if plan is None else encode_plan(plan)
    own = reason, hashlib.sha256(content).hexdigest()
    said: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(said, own)
    for theirs, _ in said:
        if theirs is not None:
            return str(theirs)
    return None if len({plan for _, plan in said}) == 1 else "ranks were given different plans"


def share_plan(plan: Plan | None, group: Any, size_bytes: int) -> bytes:
    """Rank 0's, to all others."""
    if plan is not None:
        content = torch.frombuffer(bytearray(encode_plan(plan)), dtype=torch.uint8)
    else:
        content = torch.empty(size_bytes, dtype=torch.uint8)
    distributed.broadcast(content, 0, group=group)
    return bytes(content.numpy())
