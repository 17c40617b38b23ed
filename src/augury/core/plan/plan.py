"""The Plan: what to change in a run, and what is foretold of it. The same pieces drive replay and
the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.plan.problem import Problem

PIECE_OPS = (
    OpKind.ALL_REDUCE,
    OpKind.REDUCE_SCATTER,
    OpKind.ALL_GATHER,
    OpKind.PUSH,
    OpKind.PULL,
)
FIRST_OPS = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER, OpKind.PUSH)
"""They take gradients as backward made them."""
LAST_OPS = (OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.PULL)
"""After them gradients can be applied."""
HALF_MESSAGE_BYTES = 1 << 19
"""Of an exchange in halves. All-reduces cut what they send by themselves; of shares, one large
message each way at a time is slowed by the other one's: what acknowledges it queues behind that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a gradient, which goes by its place in the Problem."""

    gradient: int
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message: slices of gradients, sent together once all of them are there."""

    op: OpKind
    slices: tuple[Slice, ...]
    after: int = NONE
    """Of a PULL or an ALL_GATHER: the place in the list of what it completes, with the same
    slices."""
    not_before_ns: int = 0
    """From the start of backward: keeps the link free for what is about to come."""

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a policy compiles a Problem into. Pieces go over their link strictly in this order:
    pulls have a link of their own, all others share one. Every byte of every gradient is in
    exactly one first piece (FIRST_OPS) and one last piece (LAST_OPS)."""

    policy: str
    pieces: tuple[Piece, ...]
    has_barrier: bool
    """Nothing is updated before everything has arrived, and no forward begins before everything
    is updated; else a module's forward waits for its own parameters only."""
    window_bytes: int | None = None
    """A piece leaves only while fewer bytes than this are under way on its link; none: as soon as
    the link is free."""
    lanes: int = 1
    """How many pieces the runtime has under way at once, if they are called for: they share the
    link, so that what one waits for is hidden behind the other, but urgent ones come later.
    Policies reckon with one; replay and runtime do what this says."""


class Mode(StrEnum):
    PIECES = "pieces"
    """The order of pieces, without DDP's own reduction."""
    DDP_BUCKETS = "ddp-buckets"
    """Stock DDP with another list of bucket sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """What is predicted of a Plan, for the run that it was made from."""

    baseline_ns: int
    """The step as it was recorded, replayed."""
    step_ns: int
    interval_ns: tuple[int, int]
    bound_ns: int
    """Lower bound on the predicted step of any order."""

    @property
    def gain_pct(self) -> float:
        return 100 * (1 - self.step_ns / self.baseline_ns) if self.baseline_ns else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``problem`` is what the order was made for: gradients go by the names of their parameters,
    and the runtime re-plans from it when the network is no longer what it says."""

    mode: Mode
    num_ranks: int
    problem: Problem
    order: Order
    bucket_caps_bytes: tuple[int, ...] = ()
    """Of DDP's buckets, the n-th for the n-th, the last for all further ones."""
    foretold: Foretold | None = None
    family: str = ""
    """Of the candidates that the order was chosen from: which kind it is."""
    replay_ratios: dict[str, float] = field(default_factory=dict)
    """For each family of candidates, the replayed over the evaluated step: a search without a
    replay ranks by the evaluated step times this."""


def is_swapped(order: Order, num_ranks: int) -> bool:
    """Whether ranks send each other their shares and add up what comes, instead of summing by
    collectives: two do that, unless the order wants the two rounds of a sum apart."""
    return num_ranks == 2 and all(piece.op is OpKind.ALL_REDUCE for piece in order.pieces)
