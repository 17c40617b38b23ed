"""What each policy comes to in a case: by the evaluator, and by replay where there is a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from augury.cli.graphs import predicted_interval, replay_graph
from augury.cli.progress import working
from augury.cli.schedule_ours import orders_to_try
from augury.core.kinds import OpKind, ResourceKind
from augury.core.plan import FIRST_OPS, LAST_OPS, Foretold, Mode, Order, Plan, is_swapped
from augury.core.plan_spec import verify_order
from augury.report.schedule_result import (
    Curve,
    PieceResult,
    PolicyResult,
    ScheduleResult,
)

if TYPE_CHECKING:
    from augury.cli.schedule_case import Case
    from augury.core.timeline import Timeline
    from augury.schedule.evaluate import Outcome
    from augury.schedule.policy import Policy

ASSUMES = {True: 0.02, False: 0.03}
"""What a prediction of another order may be off by beyond what the run shows, with and without a
barrier."""
OURS = "augury"
TOLD_APART = 0.005
"""Predicted steps that differ by a smaller share are the same."""
MAX_POINTS = 2000
"""Of a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessed:
    order: Order
    outcome: Outcome
    result: PolicyResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Of some policies in a case."""

    case: Case
    bound_ns: int
    each: list[Assessed]

    @property
    def best(self) -> Assessed:
        return best_of(self.each)

    def of_stock_ddp(self) -> Assessment:
        return replace(self, each=[one for one in self.each if one.result.is_stock_ddp])

    def result(self) -> ScheduleResult:
        return result_of(self.case, self.each, self.bound_ns)

    def plan(self) -> Plan:
        return plan_of(self.case, self.best, self.bound_ns)


def assess(case: Case, policies: Sequence[Policy]) -> Assessment:
    from augury.schedule.bound import lower_bound

    with working("bounding what any order could reach"):
        bound_ns = lower_bound(case.problem)
    return Assessment(case=case, bound_ns=bound_ns, each=_assess_all(case, policies, bound_ns))


def _assess_all(case: Case, policies: Sequence[Policy], bound_ns: int) -> list[Assessed]:
    found = []
    for policy in policies:
        with working(f"compiling {policy.name}"):
            is_ours = policy.name == OURS and case.rewritten is not None
            orders = list(orders_to_try(case, policy)) if is_ours else []
            orders = list(dict.fromkeys(orders)) or [compiled(case, policy)]
        found.append(best_of([_assess(case, order, bound_ns) for order in orders]))
    return found


def compiled(case: Case, policy: Policy) -> Order:
    """Made for the way by which it will travel: buckets of stock DDP are large for their costs."""
    from augury.schedule.bucket_list import bucket_caps

    order = policy.compile(case.stock)
    if case.problem is case.stock or bucket_caps(case.stock, order) is not None:
        return order
    order = policy.compile(case.problem)
    if is_swapped(order, case.num_ranks):
        # On one connection nothing overtakes: a window would only leave it idle.
        return replace(order, window_bytes=None)
    return policy.compile(case.stock)


def _assess(case: Case, order: Order, bound_ns: int) -> Assessed:
    from augury.schedule.bucket_list import bucket_caps
    from augury.schedule.evaluate import evaluate

    problem = case.problem_of(order)
    verify_order(order, problem)
    outcome = evaluate(problem, order)
    step_ns, interval = outcome.step_ns, _evaluated_interval(case, order, outcome)
    waiting_ns = outcome.waiting_ns
    link_pct = 100 * outcome.link_busy_ns / max(1, step_ns)
    device_pct = 100 * problem.compute_ns / max(1, step_ns)
    replayed_ns = None
    if case.rewritten is not None:
        timeline = replay_graph(case.rewritten(order))
        step_ns = replayed_ns = timeline.step_ns
        interval = predicted_interval(timeline, model_error=ASSUMES[order.has_barrier]) or interval
        device_pct = busy_pct(timeline, ResourceKind.COMPUTE)
        link_pct = busy_pct(timeline, ResourceKind.COMMUNICATION)
        waiting_ns = round(step_ns * (100 - device_pct) / 100)
    return Assessed(
        order=order,
        outcome=outcome,
        result=PolicyResult(
            policy=order.policy,
            step_ns=step_ns,
            evaluated_step_ns=outcome.step_ns,
            replayed_step_ns=replayed_ns,
            interval_ns=interval,
            gain_pct=100 * (1 - step_ns / max(1, case.baseline_ns)),
            waiting_ns=waiting_ns,
            link_use_pct=min(100.0, link_pct),
            device_use_pct=min(100.0, device_pct),
            gap_pct=100 * (outcome.step_ns / max(1, bound_ns) - 1),
            num_pieces=len(order.pieces),
            window_bytes=order.window_bytes,
            has_barrier=order.has_barrier,
            is_stock_ddp=bucket_caps(problem, order) is not None,
            transferred=_curve(
                (int(outcome.arrive_ns[i]), piece.size_bytes)
                for i, piece in enumerate(order.pieces)
                if piece.op in LAST_OPS
            ),
        ),
    )


def _evaluated_interval(case: Case, order: Order, outcome: Outcome) -> tuple[int, int]:
    from augury.costs.interval import NINE_OF_TEN

    share = NINE_OF_TEN * (ASSUMES[order.has_barrier] ** 2 + case.noise**2) ** 0.5
    return round(outcome.step_ns * (1 - share)), round(outcome.step_ns * (1 + share))


def busy_pct(timeline: Timeline, kind: ResourceKind) -> float:
    """Of the rank on which resources of this kind are busiest."""
    resources, use = timeline.graph.resources, timeline.use
    whole = use.busy_ns + use.waiting_ns + use.idle_ns
    own = (resources.kind == kind) & (whole > 0)
    return float((100 * use.busy_ns[own] / whole[own]).max(initial=0.0))


def result_of(case: Case, assessed: Sequence[Assessed], bound_ns: int) -> ScheduleResult:
    from augury.schedule.evaluate import step_ns

    problem = case.problem
    best = best_of(assessed)
    # The model may think worse of the recorded order than its replay does.
    reached_ns = min(case.baseline_ns, step_ns(case.stock, case.baseline_order))
    headroom = max(0.0, 1 - bound_ns / max(1, reached_ns))
    return ScheduleResult(
        num_ranks=case.num_ranks,
        scheme=problem.network.scheme.value,
        num_gradients=len(problem.gradients),
        size_bytes=problem.size_bytes,
        compute_ns=problem.compute_ns,
        backward_ns=problem.backward_ns,
        forward_ns=problem.forward_ns,
        overhead_ns=problem.network.overhead_ns,
        ns_per_byte=problem.network.ns_per_byte,
        ratio=problem.ratio,
        baseline=case.baseline,
        baseline_step_ns=case.baseline_ns,
        measured_step_ns=case.measured_ns,
        bound_ns=bound_ns,
        headroom_pct=100 * headroom,
        noise_pct=100 * case.noise,
        can_pay=headroom > case.noise,
        best=best.order.policy,
        plan=None,
        policies=[one.result for one in assessed],
        pieces=_pieces(case, best),
        released=_curve(
            (gradient.release_ns, gradient.size_bytes) for gradient in problem.gradients
        ),
        ledger=list(case.ledger),
    )


def best_of(assessed: Sequence[Assessed]) -> Assessed:
    """Of those that cannot be told apart, the one with the fewest pieces: each is a risk."""
    least_ns = min(one.result.step_ns for one in assessed)
    equal = [one for one in assessed if one.result.step_ns <= least_ns * (1 + TOLD_APART)]
    return min(equal, key=lambda one: (one.result.num_pieces, one.result.step_ns))


def plan_of(case: Case, best: Assessed, bound_ns: int) -> Plan:
    """Where a list of bucket sizes does it, stock DDP stays."""
    from augury.schedule.bucket_list import bucket_caps

    caps = bucket_caps(case.problem, best.order)
    step_ns = best.result.step_ns
    return Plan(
        mode=Mode.PIECES if caps is None else Mode.DDP_BUCKETS,
        num_ranks=case.num_ranks,
        problem=case.problem,
        order=best.order,
        bucket_caps_bytes=caps or (),
        foretold=Foretold(
            baseline_ns=case.baseline_ns,
            step_ns=step_ns,
            interval_ns=best.result.interval_ns or (step_ns, step_ns),
            # It holds for the evaluated step; a replay may come out a little below.
            bound_ns=min(bound_ns, step_ns),
        ),
    )


def _pieces(case: Case, best: Assessed) -> list[PieceResult]:
    problem, outcome = case.problem, best.outcome
    forward_ns = problem.backward_ns + problem.between_ns
    found = []
    for i, piece in enumerate(best.order.pieces):
        own = [problem.gradients[part.gradient] for part in piece.slices]
        ready_ns = max(gradient.release_ns for gradient in own)
        if piece.op not in FIRST_OPS:
            ready_ns = int(outcome.arrive_ns[piece.after])
        found.append(
            PieceResult(
                op=OpKind(piece.op).label,
                size_bytes=piece.size_bytes,
                num_slices=len(piece.slices),
                first_gradient=own[0].name,
                release_ns=ready_ns,
                start_ns=int(outcome.start_ns[i]),
                end_ns=int(outcome.end_ns[i]),
                arrive_ns=int(outcome.arrive_ns[i]),
                need_ns=forward_ns + min(gradient.need_ns for gradient in own),
            )
        )
    return found


def _curve(steps: Iterable[tuple[int, int]]) -> Curve:
    """Sums of (time, bytes); of very many points every so-manieth."""
    total = 0
    curve: Curve = []
    for at_ns, size_bytes in sorted(steps):
        total += size_bytes
        curve.append((at_ns, total))
    stride = -(-len(curve) // MAX_POINTS) or 1
    return [*curve[:-1:stride], *curve[-1:]]
