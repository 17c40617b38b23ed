"""Orders of gradients, compiled for the compute of a changed scene."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from augury.predict.assess_policies import OURS, AssessedOrder, assess_candidates, best_of
from augury.predict.replays import replay_changed
from augury.predict.schedule_assess import plan_of
from augury.schedule.policies.registry import find_policy

if TYPE_CHECKING:
    from augury.core.plan.plan import CommunicationSection
    from augury.passes.protocol import Scene
    from augury.predict.plan_prediction import PlannedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledOrder:
    """An order of gradients, and the section that carries it."""

    order: AssessedOrder
    section: CommunicationSection
    is_stock: bool


def compiled_orders(run: PlannedRun, scene: Scene, *, has_pieces: bool) -> list[CompiledOrder]:
    """Returns the orders of our own search for this scene: the best list of bucket sizes and, with
    ``has_pieces``, the best ordered pieces."""
    case = run.case
    if case is None or case.scheduled is None:
        return []
    scheduled = case.scheduled.with_compute(scene, replay_changed(scene.graph))
    case = replace(case, problem=scheduled.problem, stock=scheduled.stock, scheduled=scheduled)
    assessed = assess_candidates(case, find_policy(OURS), has_pieces=has_pieces)
    found = []
    for is_stock in (True, False) if has_pieces else (True,):
        own = [
            one
            for one in assessed
            if one.result.is_stock_ddp == is_stock and one.result.trouble is None
        ]
        if own:
            best = best_of(own)
            section = plan_of(case, best, best.least_step_ns).communication
            assert section is not None
            found.append(CompiledOrder(order=best, section=section, is_stock=is_stock))
    return found
