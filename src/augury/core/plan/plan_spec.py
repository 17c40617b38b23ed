"""The executable specification of a Plan and of its Order."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.plan.plan import (
    FIRST_OPS,
    FRAMEWORKS,
    LAST_OPS,
    PIECE_OPS,
    CommunicationSection,
    Mode,
    Order,
    Piece,
    Plan,
    PlanPrediction,
    PlanSection,
    parameters_digest,
    problem_parameters,
)
from augury.core.plan.problem import MAX_NS, Problem, Scheme

COMPLETES = {OpKind.PULL: OpKind.PUSH, OpKind.ALL_GATHER: OpKind.REDUCE_SCATTER}
MAX_PIECES = 1 << 20
MAX_LANES = 16
MAX_RANKS = 1 << 20
MAX_RATIO = 1e9
MAX_BYTES = 1 << 60
_DIGEST = re.compile("[0-9a-f]{64}")
_REMEDY = "run `augury schedule RUN -o plan.json` again"


def verify_plan(plan: Plan) -> None:
    """Raises InputError with the first error of the plan."""
    for error in plan_errors(plan):
        raise InputError(f"invalid plan: {error}", remedy=_REMEDY)
    if plan.communication is not None:
        verify_order(plan.communication.order, plan.communication.problem)


def verify_order(order: Order, problem: Problem) -> None:
    """Raises InputError with the first error of the order."""
    for error in order_errors(order, problem):
        raise InputError(f"invalid order of pieces: {error}", remedy=_REMEDY)


def plan_errors(plan: Plan) -> Iterator[str]:
    """Yields the errors of a plan, apart from those of its order."""
    if not 1 <= plan.num_ranks <= MAX_RANKS:
        yield f"it is for {plan.num_ranks} ranks"
    if plan.framework not in FRAMEWORKS:
        yield f"unknown framework {plan.framework!r:.80}"
    if not _DIGEST.fullmatch(plan.parameters_digest):
        yield "parameters_digest is not a SHA-256 digest"
    if plan.run_digest and not _DIGEST.fullmatch(plan.run_digest):
        yield "run_digest is not a SHA-256 digest"
    if not plan.sections:
        yield "it has no section"
    if len(plan.applied) != len(plan.sections) or {*plan.applied} != {*plan.sections}:
        yield f"it applies {_listed(plan.applied)}, but has {_listed(plan.sections)}"
    if plan.communication is not None:
        yield from _section_errors(plan.communication)
        problem = plan.communication.problem
        if parameters_digest(problem_parameters(problem)) != plan.parameters_digest:
            yield "parameters_digest does not match the gradients of the communication section"
    for name in plan.sections:
        if name is not PlanSection.COMMUNICATION:
            for error in getattr(plan, name.value).errors():
                yield f"section {name}: {error}"
    if plan.memory_limit_bytes is not None and not 1 <= plan.memory_limit_bytes <= MAX_BYTES:
        yield f"it is for a memory limit of {plan.memory_limit_bytes} bytes"
    if plan.prediction is not None:
        yield from _prediction_errors(plan.prediction, plan)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "no section"


def _section_errors(section: CommunicationSection) -> Iterator[str]:
    if section.mode is Mode.DDP_BUCKETS and not section.bucket_caps_bytes:
        yield "mode ddp-buckets without bucket_caps_bytes"
    if section.bucket_caps_bytes and min(section.bucket_caps_bytes) < 1:
        yield "bucket_caps_bytes must be positive"
    for ratio in section.replay_ratios.values():
        if not (math.isfinite(ratio) and 0 <= ratio <= MAX_RATIO):
            yield f"a replay ratio is {ratio}"


def _prediction_errors(prediction: PlanPrediction, plan: Plan) -> Iterator[str]:
    times = (
        *(prediction.baseline_ns, prediction.step_ns, prediction.bound_ns),
        *prediction.interval_ns,
        *prediction.without_ns.values(),
    )
    for time_ns in times:
        if not 0 <= time_ns <= MAX_NS:
            yield f"a predicted step takes {time_ns} ns"
    for section in prediction.without_ns:
        if section not in plan.sections:
            yield f"it predicts the step without {section}, which it does not have"


def order_errors(order: Order, problem: Problem) -> Iterator[str]:
    """Yields the errors of an order for a problem."""
    if len(order.pieces) > MAX_PIECES:
        yield f"{len(order.pieces)} pieces, at most {MAX_PIECES} are allowed"
        return
    if order.window_bytes is not None and order.window_bytes < 1:
        yield f"the window is {order.window_bytes} bytes"
    if not 1 <= order.lanes <= MAX_LANES:
        yield f"{order.lanes} lanes, 1 to {MAX_LANES} are allowed"
    for index, piece in enumerate(order.pieces):
        yield from _piece_errors(index, piece, order, problem)
    for ops in (FIRST_OPS, LAST_OPS):
        yield from _coverage_errors(order, problem, ops)


def _piece_errors(index: int, piece: Piece, order: Order, problem: Problem) -> Iterator[str]:
    name = f"piece {index}"
    if piece.op not in PIECE_OPS:
        yield f"{name} is of kind {piece.op}"
        return
    is_served = piece.op in (OpKind.PUSH, OpKind.PULL)
    if is_served != (problem.network.scheme is Scheme.PARAMETER_SERVER):
        yield f"{name} is a {piece.op.label}, but the scheme is {problem.network.scheme}"
    if piece.not_before_ns < 0:
        yield f"{name} has not_before_ns {piece.not_before_ns}"
    if not piece.slices:
        yield f"{name} is empty"
    for part in piece.slices:
        if not 0 <= part.gradient < len(problem.gradients):
            yield f"{name} has a slice of gradient {part.gradient}, which does not exist"
            continue
        gradient = problem.gradients[part.gradient]
        if part.size_bytes < 1 or part.size_bytes % gradient.item_bytes:
            yield f"{name} has {part.size_bytes} bytes of {gradient.name!r}"
    wanted = COMPLETES.get(piece.op)
    if wanted is None:
        if piece.after != NONE:
            yield f"{name} completes another piece, but is a {piece.op.label}"
    elif not 0 <= piece.after < index:
        yield f"{name} completes piece {piece.after}, which does not come before it"
    elif order.pieces[piece.after].op is not wanted or (
        order.pieces[piece.after].slices != piece.slices
    ):
        yield f"{name} is not the second half of piece {piece.after}"


def _coverage_errors(order: Order, problem: Problem, ops: tuple[OpKind, ...]) -> Iterator[str]:
    """Yields gradients whose slices do not cover every byte exactly once."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for piece in order.pieces:
        if piece.op in ops:
            for part in piece.slices:
                found[part.gradient].append((part.offset_bytes, part.size_bytes))
    for number, gradient in enumerate(problem.gradients):
        covered_bytes = 0
        for offset_bytes, size_bytes in sorted(found[number]):
            if offset_bytes != covered_bytes:
                break
            covered_bytes += size_bytes
        if covered_bytes != gradient.size_bytes or len(found[number]) == 0:
            yield f"byte {covered_bytes} of {gradient.name!r} is not sent exactly once"
