"""Agreement of all ranks on one plan and its sections, or on none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch import distributed

from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.plan_file import plan_digest
from augury.runtime.torch.ranks.groups import default_store

COLLECTED_WITHIN = timedelta(seconds=15)
DECIDED_WITHIN = timedelta(seconds=30)
DIFFERENT = "ranks were given different plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The outcome for all ranks."""

    reason: str | None = None
    """Why no rank follows the plan; None: all ranks do."""
    refused: dict[PlanSection, str] = field(default_factory=dict)
    """Sections that no rank applies, with the reason of the first rank that has one."""


def agree(
    reason: str | None, plan: Plan | None, refused: Mapping[PlanSection, str] | None = None
) -> Agreement:
    """All ranks call this and wait for each other; ``refused``: sections that this rank cannot
    apply."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Agreement(reason="torch.distributed is not initialised")
    said: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(said, _said(reason, plan, refused))
    return _decided(said)


def agree_in_time(
    name: str,
    reason: str | None,
    plan: Plan | None,
    refused: Mapping[PlanSection, str] | None = None,
) -> Agreement:
    """As ``agree``, where ranks may be missing: rank 0 decides within seconds, through the job's
    store. ``name`` identifies the question."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    store = distributed.PrefixStore(f"augury/agree/{name}", default_store())
    try:
        store.set(f"{rank}", json.dumps(_said(reason, plan, refused)))
        if rank == 0:
            decided = Agreement(reason="not all ranks were started with a plan")
            with suppress(distributed.DistError, RuntimeError):
                store.wait([f"{one}" for one in range(size)], COLLECTED_WITHIN)
                decided = _decided([json.loads(store.get(f"{one}")) for one in range(size)])
            store.set("decided", json.dumps([decided.reason, decided.refused]))
            return decided
        store.wait(["decided"], DECIDED_WITHIN)
        found, sections = json.loads(store.get("decided"))
        known = {PlanSection(one): str(why) for one, why in sections.items()}
    except (distributed.DistError, RuntimeError, ValueError) as error:
        return Agreement(reason=f"ranks could not agree on the plan: {error}")
    return Agreement(reason=None if found is None else str(found), refused=known)


def _said(
    reason: str | None, plan: Plan | None, refused: Mapping[PlanSection, str] | None
) -> list[Any]:
    sections = {section.value: why for section, why in (refused or {}).items()}
    return [reason, "" if plan is None else plan_digest(plan), sections]


def _decided(said: list[Any]) -> Agreement:
    refused: dict[PlanSection, str] = {}
    for reason, _, sections in said:
        if reason is not None:
            return Agreement(reason=str(reason))
        for section, why in sections.items():
            refused.setdefault(PlanSection(section), str(why))
    is_one = len({digest for _, digest, _ in said}) == 1
    return Agreement(refused=refused) if is_one else Agreement(reason=DIFFERENT)
