"""The log of pieces in recorded steps: when the runtime sent, received and awaited each one.

Torch's profiler does not see messages between two ranks, and collectives of a plan run from step
to step. The runtime publishes this log in the training process; the recorder stores it with the
rank's record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec

MAX_PIECES = 1 << 18
MAX_LOGGED = 1 << 20
"""Most times of one kind in a log; further steps are left out."""

_Wall = Annotated[int, msgspec.Meta(ge=0, le=3_000_000_000_000_000_000)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_SinceStart = Annotated[int, msgspec.Meta(ge=-1, le=10**17)]
_Times = Annotated[list[_SinceStart], msgspec.Meta(max_length=MAX_PIECES)]
_Name = Annotated[str, msgspec.Meta(max_length=1000)]

UNSEEN = -1


class SwappedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step in which two ranks exchanged their shares directly: times of each piece, in ns from
    the start of backward; UNSEEN where no time is known."""

    start_ns: _Wall
    """Start of backward, on the wall clock of the rank."""
    order: Annotated[int, msgspec.Meta(ge=0, le=MAX_PIECES)]
    """Index into ``orders``."""
    watched_ns: _SinceStart
    """Time from which arrivals were observed. Earlier arrivals have this time."""
    issued_ns: _Times
    """When this rank sent its share."""
    arrived_ns: _Times
    """When the share of the other rank arrived."""
    waited_from_ns: _Times
    """When the training thread began to wait for the piece, and when it continued."""
    waited_until_ns: _Times


class PieceLog(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded steps of one rank under a plan."""

    groups: Annotated[list[_Name], msgspec.Meta(max_length=1000)] = []
    """Names of the process groups that carried pieces."""
    orders: Annotated[
        list[Annotated[list[_Size], msgspec.Meta(max_length=MAX_PIECES)]],
        msgspec.Meta(max_length=1000),
    ] = []
    """Sizes of the pieces of each order that was followed."""
    steps: Annotated[list[SwappedStep], msgspec.Meta(max_length=MAX_LOGGED)] = []


class TimedPieces(Protocol):
    """A step in progress; times as in SwappedStep."""

    watched_ns: int
    issued_ns: list[int]
    arrived_ns: list[int]
    waited_ns: dict[int, tuple[int, int]]


@dataclass(slots=True)
class PieceNotes:
    """Collects the steps of a PieceLog. Added steps may still be in progress."""

    groups: list[str] = field(default_factory=list)
    _orders: list[tuple[int, ...]] = field(default_factory=list)
    _steps: list[tuple[int, int, TimedPieces]] = field(default_factory=list)
    _num_logged: int = 0

    def add_group(self, name: str) -> None:
        if name not in self.groups:
            self.groups.append(name)

    def add_step(self, start_ns: int, sizes_bytes: tuple[int, ...], timed: TimedPieces) -> None:
        """``start_ns``: start of backward, on the wall clock."""
        self._num_logged += len(sizes_bytes)
        if self._num_logged > MAX_LOGGED:
            return
        if sizes_bytes not in self._orders:
            self._orders.append(sizes_bytes)
        self._steps.append((start_ns, self._orders.index(sizes_bytes), timed))

    def forget(self, begin_ns: int, end_ns: int) -> None:
        """Drops steps whose backward began within that time."""
        self._steps = [step for step in self._steps if not begin_ns <= step[0] < end_ns]
        self._num_logged = sum(len(self._orders[order]) for _, order, _ in self._steps)

    def told(self) -> PieceLog | None:
        """Returns the log as the record stores it; None where no plan was followed."""
        if not self.groups:
            return None
        return PieceLog(
            groups=self.groups,
            orders=[[*order] for order in self._orders],
            steps=[_told(*step) for step in self._steps],
        )


def _told(start_ns: int, order: int, timed: TimedPieces) -> SwappedStep:
    waited = [timed.waited_ns.get(n, (UNSEEN, UNSEEN)) for n in range(len(timed.issued_ns))]
    return SwappedStep(
        start_ns=start_ns,
        order=order,
        watched_ns=timed.watched_ns,
        issued_ns=[*timed.issued_ns],
        arrived_ns=[*timed.arrived_ns],
        waited_from_ns=[begin for begin, _ in waited],
        waited_until_ns=[end for _, end in waited],
    )
