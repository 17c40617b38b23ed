"""The assessment of policies on a case, as a result and as a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace as changed

from augury.core.enums import OpKind
from augury.core.errors import UsageError
from augury.core.plan.plan import (
    FIRST_OPS,
    CommunicationSection,
    Mode,
    Plan,
    PlanPrediction,
    PlanSection,
    communication_plan,
)
from augury.core.plan.plan_file import save_plan
from augury.core.progress import Progress, silent
from augury.core.results.schedule import Curve, PieceResult, PolicyResult, ScheduleResult
from augury.predict.assess_policies import (
    OURS,
    AssessedOrder,
    assess_policies,
    best_of,
    byte_curve,
)
from augury.schedule.evaluate import step_ns
from augury.schedule.policies.bucket_list import BucketList, bucket_caps
from augury.schedule.policies.registry import POLICIES, find_policy

if TYPE_CHECKING:
    from augury.core.plan.problem import Problem
    from augury.predict.schedule_case import ScheduleCase
    from augury.schedule.policies.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    case: ScheduleCase
    each: list[AssessedOrder]

    @property
    def bound_ns(self) -> int:
        """The lower bound of the case, lowered to the shortest step of the assessed orders."""
        return min([self.case.bound_ns, *(one.least_step_ns for one in self.each)])

    @property
    def best(self) -> AssessedOrder:
        return best_of(self.each)

    @property
    def can_pay(self) -> bool:
        """Whether the best order gains more than the run's own variation."""
        return self.result().can_pay

    def of_stock_ddp(self) -> Assessment:
        return replace(self, each=[one for one in self.each if one.result.is_stock_ddp])

    def result(self) -> ScheduleResult:
        return result_of(self.case, self.each, self.bound_ns)

    def plan(self) -> Plan:
        return plan_of(self.case, self.best, self.bound_ns)

    def write_plan(self, path: Path, *, force: bool) -> Path | None:
        """Writes the best order as a plan and returns the path. Where no plan pays off, nothing is
        written, an existing file stays, and the result is None."""
        if not self.can_pay:
            return None
        save_plan(self.plan(), path, force=force)
        return path


def choose_policies(names: str | Sequence[str], *, low_risk: bool = False) -> list[Policy]:
    """Policies by name: ``all``, a list, or names with commas; ``low_risk`` chooses those that
    stock DDP can follow."""
    if low_risk:
        if names != "all":
            raise UsageError("--low-risk chooses the policies", remedy="leave --policy out")
        return [*(find_policy(name) for name in ("ddp", "ddp-best", "mg-wfbp")), BucketList()]
    if names == "all":
        return list(POLICIES)
    listed = names.split(",") if isinstance(names, str) else names
    return [find_policy(name.strip()) for name in listed]


def assess(
    case: ScheduleCase, policies: Sequence[Policy], *, progress: Progress = silent
) -> Assessment:
    return Assessment(case=case, each=assess_policies(case, policies, progress=progress))


def result_of(
    case: ScheduleCase, assessed: Sequence[AssessedOrder], bound_ns: int
) -> ScheduleResult:
    problem = case.problem
    best = best_of(assessed)
    # The evaluator may predict a longer step for the recorded order than its replay.
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


def _found_nothing(
    case: ScheduleCase, assessed: Sequence[AssessedOrder], best: AssessedOrder
) -> bool:
    """Whether our search, which includes stock DDP's buckets, gains less than the noise."""
    was_searched = any(one.order.policy == OURS for one in assessed)
    return was_searched and best.result.gain_pct <= 100 * case.noise


def _with_gap(result: PolicyResult, bound_ns: int) -> PolicyResult:
    return changed(result, gap_pct=100 * (result.step_ns / max(1, bound_ns) - 1))


def plan_of(case: ScheduleCase, best: AssessedOrder, bound_ns: int) -> Plan:
    """Stock DDP with a list of bucket sizes where that gives the same order, else pieces."""
    caps = bucket_caps(case.problem, best.order)
    step_ns = best.result.step_ns
    section = CommunicationSection(
        mode=Mode.PIECES if caps is None else Mode.DDP_BUCKETS,
        problem=case.problem,
        order=best.order,
        bucket_caps_bytes=caps or (),
        family=best.family,
        replay_ratios=best.replay_ratios,
    )
    return communication_plan(
        section,
        num_ranks=case.num_ranks,
        run_digest=case.run_digest,
        prediction=PlanPrediction(
            baseline_ns=case.baseline_ns,
            step_ns=step_ns,
            interval_ns=best.result.interval_ns or (step_ns, step_ns),
            bound_ns=bound_ns,
            without_ns={PlanSection.COMMUNICATION: case.baseline_ns},
        ),
    )


def _pieces(case: ScheduleCase, best: AssessedOrder) -> list[PieceResult]:
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
    """Bytes that backward has released, by the earliest release in any of the problems. These
    differ in how much communication slows backward; no byte arrives before its release."""
    earliest_ns = [
        min(gradient.release_ns for gradient in same)
        for same in zip(*(problem.gradients for problem in problems), strict=True)
    ]
    sizes = [gradient.size_bytes for gradient in problems[0].gradients]
    return byte_curve(zip(earliest_ns, sizes, strict=True), is_ahead=True)
