"""Assesses policies on a case: by the evaluator, and by replay where a run was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from augury.core.enums import ResourceKind
from augury.core.errors import AuguryError
from augury.core.plan.plan import LAST_OPS, Order, is_swapped
from augury.core.plan.plan_spec import verify_order
from augury.core.progress import Progress, silent
from augury.core.results.prediction import Prediction
from augury.core.results.schedule import Curve, PolicyResult
from augury.costs.prediction_interval import SIGMAS_OF_90_PCT
from augury.passes.communication_order import order_error
from augury.predict.prediction import predict_step
from augury.predict.replays import replay_changed
from augury.schedule.evaluate import evaluate
from augury.schedule.policies.bucket_list import bucket_caps
from augury.schedule.search.candidates import piece_candidates, stock_candidates

if TYPE_CHECKING:
    from augury.core.timeline import Timeline
    from augury.predict.schedule_case import ScheduleCase
    from augury.schedule.evaluate import Outcome
    from augury.schedule.policies.policy import Policy

OURS = "augury"
EQUAL_STEPS = 0.005
"""Predicted steps that differ by a smaller share count as equal."""
MAX_POINTS = 2000
"""Points of a curve in a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessedOrder:
    order: Order
    outcome: Outcome
    result: PolicyResult
    family: str = ""
    replay_ratios: dict[str, float] = field(default_factory=dict)
    """Replayed over evaluated step of all candidates, by family, as in a Plan."""

    @property
    def least_step_ns(self) -> int:
        return min(self.result.step_ns, self.outcome.step_ns)


def assess_policies(
    case: ScheduleCase, policies: Sequence[Policy], *, progress: Progress = silent
) -> list[AssessedOrder]:
    """One order for each policy; of our own search, the best of its candidates by replay."""
    found = []
    for policy in policies:
        with progress(f"compiling {policy.name}"):
            if policy.name == OURS and case.scheduled is not None:
                families = _families(case, policy)
            else:
                families = {case.as_followed(compiled(case, policy)): [policy.name]}
        found.append(best_of(_assess_families(case, families, progress)))
    return found


def assess_candidates(
    case: ScheduleCase, ours: Policy, *, has_pieces: bool = True, progress: Progress = silent
) -> list[AssessedOrder]:
    """All candidates of our own search; without ``has_pieces``, those that stock DDP can follow."""
    return _assess_families(case, _families(case, ours, has_pieces=has_pieces), progress)


def _assess_families(
    case: ScheduleCase, families: dict[Order, list[str]], progress: Progress
) -> list[AssessedOrder]:
    every = [_assess(case, order, progress) for order in families]
    ratios = {
        family: round(one.result.step_ns / max(1, one.outcome.step_ns), 4)
        for one, names in zip(every, families.values(), strict=True)
        for family in names
        if one.result.trouble is None
    }
    return [replace(one, family=families[one.order][0], replay_ratios=ratios) for one in every]


def _families(
    case: ScheduleCase, ours: Policy, *, has_pieces: bool = True
) -> dict[Order, list[str]]:
    """Distinct candidate orders, each with the families that it belongs to."""
    found: dict[Order, list[str]] = {}
    for one in (
        *(piece_candidates(case.problem, case.num_ranks, ours) if has_pieces else ()),
        *stock_candidates(case.stock, ours),
    ):
        found.setdefault(case.as_followed(one.order), []).append(one.family)
    return found


def compiled(case: ScheduleCase, policy: Policy) -> Order:
    """The policy's order for the costs of its transport: stock DDP sends buckets by collectives."""
    order = policy.compile(case.stock)
    if case.problem is case.stock or bucket_caps(case.stock, order) is not None:
        return order
    order = policy.compile(case.problem)
    if is_swapped(order, case.num_ranks):
        # Pieces on one connection cannot overtake each other: a window would only leave it idle.
        return replace(order, window_bytes=None)
    return policy.compile(case.stock)


def _assess(case: ScheduleCase, order: Order, progress: Progress) -> AssessedOrder:
    problem = case.problem_of(order)
    verify_order(order, problem)
    outcome = evaluate(problem, order)
    prediction = evaluated = _evaluated(case, order, outcome)
    waiting_ns = outcome.waiting_ns
    link_pct = 100 * outcome.link_busy_ns / max(1, outcome.step_ns)
    device_pct = 100 * problem.compute_ns / max(1, outcome.step_ns)
    timeline, trouble = _replayed(case, order, progress)
    if timeline is not None:
        prediction = predict_step(
            timeline,
            case.run,
            baseline_ns=case.baseline_ns,
            model_error=order_error(order).relative,
        )
        device_pct = busy_pct(timeline, ResourceKind.COMPUTE)
        link_pct = busy_pct(timeline, ResourceKind.COMMUNICATION)
        waiting_ns = round(timeline.step_ns * (100 - device_pct) / 100)
    return AssessedOrder(
        order=order,
        outcome=outcome,
        result=PolicyResult(
            policy=order.policy,
            step_ns=prediction.predicted_step_ns,
            evaluated_step_ns=outcome.step_ns,
            replayed_step_ns=timeline.step_ns if timeline is not None else None,
            interval_ns=prediction.interval_ns or evaluated.interval_ns,
            gain_pct=prediction.gain_pct or 0.0,
            waiting_ns=waiting_ns,
            link_use_pct=min(100.0, link_pct),
            device_use_pct=min(100.0, device_pct),
            gap_pct=0.0,
            num_pieces=len(order.pieces),
            window_bytes=order.window_bytes,
            has_barrier=order.has_barrier,
            is_stock_ddp=bucket_caps(problem, order) is not None,
            trouble=trouble,
            transferred=byte_curve(
                (int(outcome.arrive_ns[i]), piece.size_bytes)
                for i, piece in enumerate(order.pieces)
                if piece.op in LAST_OPS
            ),
        ),
    )


def _replayed(
    case: ScheduleCase, order: Order, progress: Progress
) -> tuple[Timeline | None, str | None]:
    """The replay of the recorded run with this order, or the reason why there is none."""
    if case.scheduled is None:
        return None, None
    try:
        return replay_changed(case.scheduled.follow(order), progress=progress), None
    except AuguryError as error:
        return None, error.cause


def _evaluated(case: ScheduleCase, order: Order, outcome: Outcome) -> Prediction:
    model_error = order_error(order).relative
    share = SIGMAS_OF_90_PCT * (model_error**2 + case.noise**2) ** 0.5
    return Prediction(
        predicted_step_ns=outcome.step_ns,
        interval_ns=(round(outcome.step_ns * (1 - share)), round(outcome.step_ns * (1 + share))),
        baseline_step_ns=case.baseline_ns,
        model_error=model_error,
    )


def busy_pct(timeline: Timeline, kind: ResourceKind) -> float:
    """Utilization of the busiest resource of this kind."""
    resources, use = timeline.graph.resources, timeline.utilization
    whole = use.busy_ns + use.waiting_ns + use.idle_ns
    own = (resources.kind == kind) & (whole > 0)
    return float((100 * use.busy_ns[own] / whole[own]).max(initial=0.0))


def best_of(assessed: Sequence[AssessedOrder]) -> AssessedOrder:
    """The fastest order; among equally fast ones, the one with the fewest pieces, since each piece
    is a risk. Orders that could not be replayed count only where no order could."""
    assessed = [one for one in assessed if one.result.trouble is None] or assessed
    least_ns = min(one.result.step_ns for one in assessed)
    equal = [one for one in assessed if one.result.step_ns <= least_ns * (1 + EQUAL_STEPS)]
    return min(equal, key=lambda one: (one.result.num_pieces, one.result.step_ns))


def byte_curve(steps: Iterable[tuple[int, int]], *, is_ahead: bool = False) -> Curve:
    """Cumulative bytes over time, thinned to ``MAX_POINTS``. A thinned curve never lies ahead of
    the whole one or, with ``is_ahead``, never behind it."""
    total = 0
    curve: Curve = []
    for at_ns, size_bytes in sorted(steps):
        total += size_bytes
        curve.append((at_ns, total))
    stride = -(-len(curve) // MAX_POINTS) or 1
    if stride == 1:
        return curve
    last = len(curve) - 1
    if is_ahead:
        kept = range(0, last + 1, stride)
        return [(curve[i][0], curve[min(i + stride - 1, last)][1]) for i in kept]
    return [*curve[:-1:stride], *curve[-1:]]
