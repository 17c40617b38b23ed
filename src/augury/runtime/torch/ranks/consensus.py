"""Agreement of all ranks on one plan, or on none."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch import distributed

from augury.core.plan.plan import Plan
from augury.core.plan.plan_file import plan_digest
from augury.runtime.torch.ranks.groups import default_store

COLLECTED_WITHIN = timedelta(seconds=15)
DECIDED_WITHIN = timedelta(seconds=30)
DIFFERENT = "ranks were given different plans"


def agree(reason: str | None, plan: Plan | None) -> str | None:
    """Returns the reason of the first rank that has one; None: all ranks follow the plan. All ranks
    call this and wait for each other."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return "torch.distributed is not initialised"
    said: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(said, (reason, "" if plan is None else plan_digest(plan)))
    return _decided(said)


def agree_in_time(name: str, reason: str | None, plan: Plan | None) -> str | None:
    """As ``agree``, where ranks may be missing: rank 0 decides within seconds, through the job's
    store. ``name`` identifies the question."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    store = distributed.PrefixStore(f"augury/agree/{name}", default_store())
    own = [reason, "" if plan is None else plan_digest(plan)]
    try:
        store.set(f"{rank}", json.dumps(own))
        if rank == 0:
            decided: str | None = "not all ranks were started with a plan"
            with suppress(distributed.DistError, RuntimeError):
                store.wait([f"{one}" for one in range(size)], COLLECTED_WITHIN)
                decided = _decided([json.loads(store.get(f"{one}")) for one in range(size)])
            store.set("decided", json.dumps(decided))
            return decided
        store.wait(["decided"], DECIDED_WITHIN)
        found = json.loads(store.get("decided"))
    except (distributed.DistError, RuntimeError, ValueError) as error:
        return f"ranks could not agree on the plan: {error}"
    return None if found is None else str(found)


def _decided(said: list[Any]) -> str | None:
    for reason, _ in said:
        if reason is not None:
            return str(reason)
    return None if len({digest for _, digest in said}) == 1 else DIFFERENT
