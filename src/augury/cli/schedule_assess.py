"""What each policy comes to in a case: by the evaluator, and by replay where there is a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from augury.cli.graphs import predicted_interval, replay_changed
from augury.cli.progress import working
from augury.core.enums import OpKind, ResourceKind
from augury.core.errors import AuguryError
from augury.core.plan.plan import FIRST_OPS, LAST_OPS, Foretold, Mode, Order, Plan, is_swapped
from augury.core.plan.plan_spec import verify_order
from augury.report.schedule_result import (
    Curve,
    PieceResult,
    PolicyResult,
    ScheduleResult,
)

if TYPE_CHECKING:
    from augury.cli.schedule_case import ScheduleCase
    from augury.core.plan.problem import Problem
    from augury.core.timeline import Timeline
    from augury.schedule.evaluate import Outcome
    from augury.schedule.policies.policy import Policy

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
    family: str = ""
    replay_ratios: dict[str, float] = field(default_factory=dict)
    """Of all candidates that this one was chosen from, as in a Plan."""

    @property
    def least_step_ns(self) -> int:
        return min(self.result.step_ns, self.outcome.step_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Of some policies in a case."""

    case: ScheduleCase
    each: list[Assessed]

    @property
    def bound_ns(self) -> int:
        """Never above a step of the same table."""
        return min([self.case.bound_ns, *(one.least_step_ns for one in self.each)])

    @property
    def best(self) -> Assessed:
        return best_of(self.each)

    @property
    def can_pay(self) -> bool:
        """Whether the best order gains anything that the run's own variations do not hide."""
        return self.result().can_pay

    def of_stock_ddp(self) -> Assessment:
        return replace(self, each=[one for one in self.each if one.result.is_stock_ddp])

    def result(self) -> ScheduleResult:
        return result_of(self.case, self.each, self.bound_ns)

    def plan(self) -> Plan:
        return plan_of(self.case, self.best, self.bound_ns)

    def write_plan(self, path: Path, *, force: bool) -> Path | None:
        """The path; None where no plan can pay: then nothing is written, nor replaced."""
        from augury.core.plan.plan_file import save_plan

        if not self.can_pay:
            return None
        save_plan(self.plan(), path, force=force)
        return path


def assess(case: ScheduleCase, policies: Sequence[Policy]) -> Assessment:
    return Assessment(case=case, each=_assess_all(case, policies))


def _assess_all(case: ScheduleCase, policies: Sequence[Policy]) -> list[Assessed]:
    found = []
    for policy in policies:
        with working(f"compiling {policy.name}"):
            if policy.name == OURS and case.rewritten is not None:
                families = _families(case, policy)
            else:
                families = {compiled(case, policy): [policy.name]}
        every = [_assess(case, order) for order in families]
        ratios = {
            family: round(one.result.step_ns / max(1, one.outcome.step_ns), 4)
            for one, names in zip(every, families.values(), strict=True)
            for family in names
            if one.result.trouble is None
        }
        best = best_of(every)
        found.append(replace(best, family=families[best.order][0], replay_ratios=ratios))
    return found


def _families(case: ScheduleCase, ours: Policy) -> dict[Order, list[str]]:
    """Orders to choose from, each once, with the families of candidates that it is of."""
    from augury.schedule.search.candidates import piece_candidates, stock_candidates

    found: dict[Order, list[str]] = {}
    for one in (
        *piece_candidates(case.problem, case.num_ranks, ours),
        *stock_candidates(case.stock, ours),
    ):
        found.setdefault(one.order, []).append(one.family)
    return found


def compiled(case: ScheduleCase, policy: Policy) -> Order:
    """Made for the way by which it will travel: buckets of stock DDP are large for their costs."""
    from augury.schedule.policies.bucket_list import bucket_caps

    order = policy.compile(case.stock)
    if case.problem is case.stock or bucket_caps(case.stock, order) is not None:
        return order
    order = policy.compile(case.problem)
    if is_swapped(order, case.num_ranks):
        # On one connection nothing overtakes: a window would only leave it idle.
        return replace(order, window_bytes=None)
    return policy.compile(case.stock)


def _assess(case: ScheduleCase, order: Order) -> Assessed:
    from augury.passes.communication_order import order_error
    from augury.schedule.evaluate import evaluate
    from augury.schedule.policies.bucket_list import bucket_caps

    problem = case.problem_of(order)
    verify_order(order, problem)
    outcome = evaluate(problem, order)
    step_ns, interval = outcome.step_ns, _evaluated_interval(case, order, outcome)
    waiting_ns = outcome.waiting_ns
    link_pct = 100 * outcome.link_busy_ns / max(1, step_ns)
    device_pct = 100 * problem.compute_ns / max(1, step_ns)
    replayed_ns = None
    timeline, trouble = _replayed(case, order)
    if timeline is not None:
        step_ns = replayed_ns = timeline.step_ns
        interval = (
            predicted_interval(timeline, case.run, model_error=order_error(order).relative)
            or interval
        )
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
            gap_pct=0.0,
            num_pieces=len(order.pieces),
            window_bytes=order.window_bytes,
            has_barrier=order.has_barrier,
            is_stock_ddp=bucket_caps(problem, order) is not None,
            trouble=trouble,
            transferred=_curve(
                (int(outcome.arrive_ns[i]), piece.size_bytes)
                for i, piece in enumerate(order.pieces)
                if piece.op in LAST_OPS
            ),
        ),
    )


def _replayed(case: ScheduleCase, order: Order) -> tuple[Timeline | None, str | None]:
    """The recorded run under the order; or why it cannot be replayed so."""
    if case.rewritten is None:
        return None, None
    try:
        return replay_changed(case.rewritten(order)), None
    except AuguryError as error:
        return None, error.cause


def _evaluated_interval(case: ScheduleCase, order: Order, outcome: Outcome) -> tuple[int, int]:
    from augury.costs.prediction_interval import NINE_OF_TEN
    from augury.passes.communication_order import order_error

    share = NINE_OF_TEN * (order_error(order).relative ** 2 + case.noise**2) ** 0.5
    return round(outcome.step_ns * (1 - share)), round(outcome.step_ns * (1 + share))


def busy_pct(timeline: Timeline, kind: ResourceKind) -> float:
    """Of the rank on which resources of this kind are busiest."""
    resources, use = timeline.graph.resources, timeline.use
    whole = use.busy_ns + use.waiting_ns + use.idle_ns
    own = (resources.kind == kind) & (whole > 0)
    return float((100 * use.busy_ns[own] / whole[own]).max(initial=0.0))


def result_of(case: ScheduleCase, assessed: Sequence[Assessed], bound_ns: int) -> ScheduleResult:
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
        can_pay=headroom > case.noise
        and not _found_nothing(case, assessed, best)
        and best.result.trouble is None
        and best.result.gain_pct > 0,
        best=best.order.policy,
        plan=None,
        policies=[_with_gap(one.result, bound_ns) for one in assessed],
        pieces=_pieces(case, best),
        released=released_first(case.problem, case.stock),
        ledger=list(case.ledger),
        warnings=case.warnings,
    )


def _found_nothing(case: ScheduleCase, assessed: Sequence[Assessed], best: Assessed) -> bool:
    """Whether our search, which also tries what stock DDP can do, gains less than noise hides."""
    was_searched = any(one.order.policy == OURS for one in assessed)
    return was_searched and best.result.gain_pct <= 100 * case.noise


def _with_gap(result: PolicyResult, bound_ns: int) -> PolicyResult:
    from msgspec.structs import replace as changed

    return changed(result, gap_pct=100 * (result.step_ns / max(1, bound_ns) - 1))


def best_of(assessed: Sequence[Assessed]) -> Assessed:
    """Of those that cannot be told apart, the one with the fewest pieces: each is a risk. An order
    that could not be replayed only where none could."""
    assessed = [one for one in assessed if one.result.trouble is None] or assessed
    least_ns = min(one.result.step_ns for one in assessed)
    equal = [one for one in assessed if one.result.step_ns <= least_ns * (1 + TOLD_APART)]
    return min(equal, key=lambda one: (one.result.num_pieces, one.result.step_ns))


def plan_of(case: ScheduleCase, best: Assessed, bound_ns: int) -> Plan:
    """Where a list of bucket sizes does it, stock DDP stays."""
    from augury.schedule.policies.bucket_list import bucket_caps

    caps = bucket_caps(case.problem, best.order)
    step_ns = best.result.step_ns
    return Plan(
        mode=Mode.PIECES if caps is None else Mode.DDP_BUCKETS,
        num_ranks=case.num_ranks,
        problem=case.problem,
        order=best.order,
        bucket_caps_bytes=caps or (),
        family=best.family,
        replay_ratios=best.replay_ratios,
        foretold=Foretold(
            baseline_ns=case.baseline_ns,
            step_ns=step_ns,
            interval_ns=best.result.interval_ns or (step_ns, step_ns),
            bound_ns=bound_ns,
        ),
    )


def _pieces(case: ScheduleCase, best: Assessed) -> list[PieceResult]:
    problem, outcome = case.problem_of(best.order), best.outcome
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


def released_first(*problems: Problem) -> Curve:
    """Bytes that backward has released by any of the problems that orders are evaluated with: they
    differ in how much communication slows backward, and nothing arrives before it is released."""
    earliest_ns = [
        min(gradient.release_ns for gradient in same)
        for same in zip(*(problem.gradients for problem in problems), strict=True)
    ]
    sizes = [gradient.size_bytes for gradient in problems[0].gradients]
    return _curve(zip(earliest_ns, sizes, strict=True), is_ahead=True)


def _curve(steps: Iterable[tuple[int, int]], *, is_ahead: bool = False) -> Curve:
    """Sums of (time, bytes), thinned to ``MAX_POINTS``. A thinned curve lies behind the whole one,
    or, with ``is_ahead``, ahead of it."""
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
