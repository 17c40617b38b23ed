"""Segments of a main thread that tile a step: work, waiting, unexplained time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from augury.core.enums import OpKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSegment:
    """A segment of a thread. Of kind SYNC, the thread only waits for ``waits_for``."""

    kind: OpKind
    name: str
    start_ns: int
    end_ns: int
    layer: str = ""
    size_bytes: int = 0
    gradient: int = -1
    """Index of the gradient in its step that exists when the segment ends; -1 if none."""
    waits_for: tuple[int, ...] = ()
    """Keys of collectives that must have ended before the segment begins."""

    @property
    def dur_ns(self) -> int:
        return self.end_ns - self.start_ns


def waiting(start_ns: int, end_ns: int, collective: int) -> ThreadSegment:
    """Returns a segment that waits for a collective."""
    return ThreadSegment(
        kind=OpKind.SYNC, name="wait", start_ns=start_ns, end_ns=end_ns, waits_for=(collective,)
    )


def lay(
    segments: Iterable[ThreadSegment], waits: Iterable[ThreadSegment]
) -> Iterator[ThreadSegment]:
    """Yields segments with the waits inserted. A segment is split by a wait in its middle."""
    rest = sorted(waits, key=lambda wait: (wait.end_ns, wait.start_ns))
    reach_ns = -(1 << 62)
    for segment in segments:
        left = segment
        # A wait that ends at an empty segment precedes it.
        while rest and (rest[0].end_ns < left.end_ns or rest[0].end_ns <= left.start_ns):
            wait = rest.pop(0)
            begin_ns = max(wait.start_ns, reach_ns)
            if begin_ns > left.start_ns:
                # The first part makes the gradient: a launch precedes the wait for it.
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
    segments: Iterable[ThreadSegment], *, start_ns: int, end_ns: int, unexplained: float
) -> Iterator[ThreadSegment]:
    """Fills the gaps between segments. A gap extends the segment before it, apart from the share
    ``unexplained``, which detailed steps could not attribute to operations either."""
    before = ThreadSegment(
        kind=OpKind.OTHER, name="step begins", start_ns=start_ns, end_ns=start_ns
    )
    for segment in segments:
        at_ns = min(max(segment.start_ns, before.end_ns), end_ns)
        yield from _extended(before, at_ns, unexplained)
        before = replace(segment, start_ns=at_ns, end_ns=min(max(segment.end_ns, at_ns), end_ns))
    yield from _extended(before, end_ns, unexplained)


def _extended(segment: ThreadSegment, until_ns: int, unexplained: float) -> Iterator[ThreadSegment]:
    if segment.kind == OpKind.SYNC:
        yield segment
        segment = ThreadSegment(
            kind=OpKind.OTHER, name="resume", start_ns=segment.end_ns, end_ns=segment.end_ns
        )
    known_ns = until_ns - round((until_ns - segment.end_ns) * unexplained)
    if known_ns > segment.start_ns or segment.waits_for or segment.gradient >= 0:
        yield replace(segment, end_ns=known_ns)
    if until_ns > known_ns:
        yield ThreadSegment(
            kind=OpKind.UNEXPLAINED, name="unexplained", start_ns=known_ns, end_ns=until_ns
        )


def without_waits(segments: Iterable[ThreadSegment]) -> Iterator[ThreadSegment]:
    """Yields segments of work only; each takes over the waits before it. A wait for nothing marks a
    call, which also follows the waits before it."""
    pending: tuple[int, ...] = ()
    end_ns = 0
    for segment in segments:
        end_ns = segment.end_ns
        if segment.kind != OpKind.SYNC:
            yield replace(segment, waits_for=(*pending, *segment.waits_for))
            pending = ()
        elif segment.waits_for:
            pending += segment.waits_for
        elif pending:
            yield _resume(end_ns, pending)
            pending = ()
    if pending:
        yield _resume(end_ns, pending)


def _resume(at_ns: int, pending: tuple[int, ...]) -> ThreadSegment:
    return ThreadSegment(
        kind=OpKind.MARK, name="resume", start_ns=at_ns, end_ns=at_ns, waits_for=pending
    )
