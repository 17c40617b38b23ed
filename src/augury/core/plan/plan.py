"""The Plan: sections that change a training run, and the predicted effect of each section.

The pieces of the communication section drive the replay and the runtime alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.plan.problem import Problem
from augury.core.plan.sections import (
    AccumulateSection,
    CompressionSection,
    FusionSection,
    LoaderSection,
    PrecisionSection,
    RecomputeSection,
    ShardingSection,
    ThreadsSection,
)

PIECE_OPS = (
    OpKind.ALL_REDUCE,
    OpKind.REDUCE_SCATTER,
    OpKind.ALL_GATHER,
    OpKind.PUSH,
    OpKind.PULL,
)
FIRST_OPS = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER, OpKind.PUSH)
"""Operations that take gradients as backward computed them."""
LAST_OPS = (OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.PULL)
"""Operations after which gradients can be applied."""
HALF_MESSAGE_BYTES = 1 << 19
"""Largest message of a reduce-scatter or all-gather. All-reduces split their messages themselves.
One large message in each direction at a time would be slowed by the other one, because its
acknowledgements queue behind that."""
TORCH = "torch"
FRAMEWORKS = (TORCH, "tensorflow", "jax", "mxnet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a gradient. The gradient is given by its index in the Problem."""

    gradient: int
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message: slices of gradients, sent together once all of them are released."""

    op: OpKind
    slices: tuple[Slice, ...]
    after: int = NONE
    """For a PULL or an ALL_GATHER: index of the piece that it completes, with the same slices."""
    not_before_ns: int = 0
    """Earliest start, from the start of backward: keeps the link free for an urgent piece."""

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The pieces that a policy compiles a Problem into, in the order in which they are sent.

    Pieces take their link strictly in this order: pulls have a link of their own, all others share
    one. Every byte of every gradient is in exactly one first piece (FIRST_OPS) and in exactly one
    last piece (LAST_OPS)."""

    policy: str
    pieces: tuple[Piece, ...]
    has_barrier: bool
    """Whether updates wait for all pieces and the next forward waits for all updates. Otherwise
    the forward of a module waits only for its own parameters."""
    window_bytes: int | None = None
    """A piece is sent only while fewer bytes than this are in flight on its link; None: as soon as
    the link is free."""
    lanes: int = 1
    """Number of pieces that the runtime keeps in flight at once, if enough of them are ready. They
    share the link, so the latency of one is hidden behind another, but urgent pieces arrive later.
    Policies assume one lane; replay and runtime use this number."""


class Mode(StrEnum):
    """How the communication section is applied."""

    PIECES = "pieces"
    """The order of pieces, without DDP's own reduction."""
    DDP_BUCKETS = "ddp-buckets"
    """Stock DDP with another list of bucket sizes."""


class PlanSection(StrEnum):
    """The sections of a plan: each one changes the training in one way."""

    COMMUNICATION = "communication"
    FUSION = "fusion"
    RECOMPUTE = "recompute"
    PRECISION = "precision"
    COMPRESSION = "compression"
    LOADER = "loader"
    THREADS = "threads"
    ACCUMULATE = "accumulate"
    SHARDING = "sharding"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationSection:
    """The order in which gradients are sent, with the problem that it solves.

    The problem gives gradients the names of their parameters. The runtime re-plans from it when
    the network differs from the one that it states."""

    mode: Mode
    problem: Problem
    order: Order
    bucket_caps_bytes: tuple[int, ...] = ()
    """Sizes of DDP's buckets: the n-th for the n-th bucket, the last for all further ones."""
    family: str = ""
    """Family of candidates that the order was chosen from."""
    replay_ratios: dict[str, float] = field(default_factory=dict)
    """Replayed over evaluated step, for each family of candidates. A search without replay ranks
    candidates by the evaluated step times this ratio."""


SECTIONS: dict[PlanSection, type] = {
    PlanSection.COMMUNICATION: CommunicationSection,
    PlanSection.FUSION: FusionSection,
    PlanSection.RECOMPUTE: RecomputeSection,
    PlanSection.PRECISION: PrecisionSection,
    PlanSection.COMPRESSION: CompressionSection,
    PlanSection.LOADER: LoaderSection,
    PlanSection.THREADS: ThreadsSection,
    PlanSection.ACCUMULATE: AccumulateSection,
    PlanSection.SHARDING: ShardingSection,
}
"""The content of each section."""
FREES_MEMORY = (PlanSection.RECOMPUTE, PlanSection.PRECISION)
"""Sections that save activations, for which a plan may be slower to meet a memory limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPrediction:
    """The predicted step under a Plan, for the run that the plan was made from."""

    baseline_ns: int
    """The recorded step, replayed."""
    step_ns: int
    """The step with all sections applied."""
    interval_ns: tuple[int, int]
    bound_ns: int
    """Lower bound on the predicted step of any order."""
    without_ns: dict[PlanSection, int] = field(default_factory=dict)
    """The predicted step with one section left out, for each section."""

    @property
    def gain_pct(self) -> float:
        return 100 * (1 - self.step_ns / self.baseline_ns) if self.baseline_ns else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes of one training run, each in a section of its own."""

    num_ranks: int
    """World size."""
    parameters_digest: str
    """Fingerprint of the trained parameters: see ``parameters_digest``."""
    framework: str = TORCH
    """One of FRAMEWORKS."""
    run_digest: str = ""
    """Digest of the run that the plan was made from; empty where it was made from a graph or a
    stated problem."""
    communication: CommunicationSection | None = None
    fusion: FusionSection | None = None
    recompute: RecomputeSection | None = None
    precision: PrecisionSection | None = None
    compression: CompressionSection | None = None
    loader: LoaderSection | None = None
    threads: ThreadsSection | None = None
    accumulate: AccumulateSection | None = None
    sharding: ShardingSection | None = None
    applied: tuple[PlanSection, ...] = (PlanSection.COMMUNICATION,)
    """The sections of this plan in the order in which they are applied."""
    memory_limit_bytes: int | None = None
    """Peak memory that a rank may have, where the plan was made because the training had more:
    such a plan is followed even if it is slower."""
    prediction: PlanPrediction | None = None

    @property
    def sections(self) -> tuple[PlanSection, ...]:
        """The sections that this plan has."""
        return tuple(one for one in PlanSection if getattr(self, one.value) is not None)


def communication_plan(
    section: CommunicationSection,
    *,
    num_ranks: int,
    run_digest: str = "",
    prediction: PlanPrediction | None = None,
) -> Plan:
    """Returns a plan for PyTorch that changes only communication."""
    return Plan(
        num_ranks=num_ranks,
        parameters_digest=parameters_digest(problem_parameters(section.problem)),
        run_digest=run_digest,
        communication=section,
        prediction=prediction,
    )


def communication_of(plan: Plan) -> CommunicationSection:
    """Returns the communication section. Raises InputError where the plan has none."""
    if plan.communication is None:
        raise InputError(
            "the plan has no communication section",
            remedy="make one with `augury schedule RUN -o plan.json`",
        )
    return plan.communication


def parameters_digest(parameters: Iterable[tuple[str, int, int]]) -> str:
    """Returns the fingerprint of parameters, given as (name, size in bytes, item size in bytes).

    Recorded runs state no shapes, so sizes stand for them. The order of the parameters does not
    matter."""
    found = hashlib.sha256()
    for name, size_bytes, item_bytes in sorted(parameters):
        found.update(f"{name}\0{size_bytes}\0{item_bytes}\n".encode(errors="surrogatepass"))
    return found.hexdigest()


def problem_parameters(problem: Problem) -> list[tuple[str, int, int]]:
    """Returns the parameters of a problem as ``parameters_digest`` takes them."""
    return [(one.name, one.size_bytes, one.item_bytes) for one in problem.gradients]


def is_swapped(order: Order, num_ranks: int) -> bool:
    """Whether ranks send each other their shares and add the received ones, instead of using
    collectives: two ranks do, unless the order has the two halves of all-reduces apart."""
    return num_ranks == 2 and all(piece.op is OpKind.ALL_REDUCE for piece in order.pieces)
