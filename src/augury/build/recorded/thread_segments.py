"""A rank's main thread in one step as pieces that tile it: work, waiting, unexplained time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from augury.core.enums import OpKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSegment:
    """A piece of kind SYNC is time in which the thread did nothing but wait for ``waits_for``."""

    kind: OpKind
    name: str
    start_ns: int
    end_ns: int
    layer: str = ""
    size_bytes: int = 0
    gradient: int = -1
    """The how-manieth gradient of the step is there when it ends; -1: none."""
    waits_for: tuple[int, ...] = ()
    """Exchanges (keys of the caller's) that must have ended before it begins."""

    @property
    def dur_ns(self) -> int:
        return self.end_ns - self.start_ns


def waiting(start_ns: int, end_ns: int, exchange: int) -> ThreadSegment:
    return ThreadSegment(
        kind=OpKind.SYNC, name="wait", start_ns=start_ns, end_ns=end_ns, waits_for=(exchange,)
    )


def lay(pieces: Iterable[ThreadSegment], waits: Iterable[ThreadSegment]) -> Iterator[ThreadSegment]:
    """Waits between the pieces, or in the middle of one, which goes on afterwards."""
    rest = sorted(waits, key=lambda wait: (wait.end_ns, wait.start_ns))
    reach_ns = -(1 << 62)
    for piece in pieces:
        left = piece
        # A wait that ends where a piece of no length stands comes before it.
        while rest and (rest[0].end_ns < left.end_ns or rest[0].end_ns <= left.start_ns):
            wait = rest.pop(0)
            begin_ns = max(wait.start_ns, reach_ns)
            if begin_ns > left.start_ns:
                # What it makes is there before it waits: a launch comes before its wait.
                yield replace(left, end_ns=begin_ns)
                left = replace(left, gradient=-1, waits_for=())
            done_ns = max(wait.end_ns, begin_ns)
            yield replace(wait, start_ns=begin_ns, end_ns=done_ns)
            left = replace(left, start_ns=max(left.start_ns, done_ns))
            reach_ns = done_ns
        yield left
        reach_ns = max(reach_ns, left.end_ns)
    for wait in rest:
        begin_ns = max(wait.start_ns, reach_ns)
        reach_ns = max(wait.end_ns, begin_ns)
        yield replace(wait, start_ns=begin_ns, end_ns=reach_ns)


def tile(
    pieces: Iterable[ThreadSegment], *, start_ns: int, end_ns: int, unexplained: float
) -> Iterator[ThreadSegment]:
    """Fills what lies between pieces. It is work of the piece before it as far as detailed
    recording finds operations in such places; the share ``unexplained`` stays visible as such."""
    before = ThreadSegment(
        kind=OpKind.OTHER, name="step begins", start_ns=start_ns, end_ns=start_ns
    )
    for piece in pieces:
        at_ns = min(max(piece.start_ns, before.end_ns), end_ns)
        yield from _stretched(before, at_ns, unexplained)
        before = replace(piece, start_ns=at_ns, end_ns=min(max(piece.end_ns, at_ns), end_ns))
    yield from _stretched(before, end_ns, unexplained)


def _stretched(piece: ThreadSegment, until_ns: int, unexplained: float) -> Iterator[ThreadSegment]:
    if piece.kind == OpKind.SYNC:
        yield piece
        piece = ThreadSegment(
            kind=OpKind.OTHER, name="resume", start_ns=piece.end_ns, end_ns=piece.end_ns
        )
    known_ns = until_ns - round((until_ns - piece.end_ns) * unexplained)
    if known_ns > piece.start_ns or piece.waits_for or piece.gradient >= 0:
        yield replace(piece, end_ns=known_ns)
    if until_ns > known_ns:
        yield ThreadSegment(
            kind=OpKind.UNEXPLAINED, name="unexplained", start_ns=known_ns, end_ns=until_ns
        )


def without_waits(pieces: Iterable[ThreadSegment]) -> Iterator[ThreadSegment]:
    """Only what the thread works; who comes after a wait is told what to wait for. Where a wait is
    for nothing, the thread called for something, which comes after the waits before it too."""
    pending: tuple[int, ...] = ()
    end_ns = 0
    for piece in pieces:
        end_ns = piece.end_ns
        if piece.kind != OpKind.SYNC:
            yield replace(piece, waits_for=(*pending, *piece.waits_for))
            pending = ()
        elif piece.waits_for:
            pending += piece.waits_for
        elif pending:
            yield _resume(end_ns, pending)
            pending = ()
    if pending:
        yield _resume(end_ns, pending)


def _resume(at_ns: int, pending: tuple[int, ...]) -> ThreadSegment:
    return ThreadSegment(
        kind=OpKind.MARK, name="resume", start_ns=at_ns, end_ns=at_ns, waits_for=pending
    )
