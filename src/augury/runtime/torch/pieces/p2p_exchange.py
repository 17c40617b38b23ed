"""Direct exchange between two ranks: each sends its share of a piece and adds the other one.

The bytes and the sums are those of an all-reduce, to the bit, but there is no second round. Shares
follow each other on one connection without a gap, in the order in which they are sent, and a rank
can receive a share before its own is ready. A gloo all-reduce costs some milliseconds beyond its
bytes where ranks have few cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from augury.runtime.torch.pieces.buffers import PieceBuffers
from augury.runtime.torch.ranks.groups import PieceGroup

MAX_PIECES = 1 << 18
EPOCHS = 1 << 12
"""Tags have 31 bits."""


class PeerExchange:
    """``epoch``: number of earlier exchanges on this group, the same on both ranks. It keeps
    receives of an earlier exchange, which will never match, apart from this one's."""

    def __init__(self, group: PieceGroup, buffers: PieceBuffers, epoch: int) -> None:
        self._group = group
        self._other = 1 - group.rank
        self._buffers = buffers
        self._epoch = epoch % EPOCHS
        self._step = self._first_tag = 0
        self._coming: Sequence[Any] = []
        self._next_coming: list[Any] = []
        self._going: list[Any] = []

    def begin(self, note: Callable[[int], None] | None) -> None:
        """Begins a step. Posts receives for this step and the next, so that a rank that is ahead
        need not wait until this rank has used its sums. Another thread calls ``note`` with each
        piece that has arrived."""
        buffers = self._buffers
        if self._step:
            buffers.turn()
            coming = self._next_coming
        else:
            coming = self._receive(buffers.arriving, step=0)
        self._first_tag = self._tags_of(self._step)
        self._step += 1
        self._next_coming = self._receive(buffers.next_arriving, step=self._step)
        self._coming = coming if note is None else watched(coming, note)

    def _receive(self, places: list[Any], *, step: int) -> list[Any]:
        first = self._tags_of(step)
        with unrecorded():
            return [
                self._group.receive(place, self._other, first + number)
                for number, place in enumerate(places)
            ]

    def _tags_of(self, step: int) -> int:
        """Returns the first tag of a step. At most two steps are in flight."""
        return (2 * self._epoch + step % 2) * MAX_PIECES

    def send(self, number: int) -> IncomingPiece:
        own = self._buffers.pieces[number]
        with unrecorded():
            self._going.append(self._group.send(own, self._other, self._first_tag + number))
        return IncomingPiece(self._coming[number], self._buffers.arriving[number], own)

    def end(self) -> None:
        """Waits until everything is sent, too."""
        for work in self._going:
            work.wait()
        self._going.clear()


@contextmanager
def unrecorded() -> Iterator[None]:
    """Hides messages from torch's profiler. A message that the profiler has seen begin must end
    before the profiler does, or it writes into freed memory; these messages span steps."""
    if not torch.autograd._profiler_enabled():
        yield
        return
    torch.autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch.autograd._enable_record_function(True)


class IncomingPiece:
    """A share in flight; ``wait`` is called once, as for a work of torch."""

    def __init__(self, work: Any, place: Any, own: Any) -> None:
        self._work, self._place, self._own = work, place, own

    def wait(self) -> None:
        self._work.wait()
        self._place.add_(self._own)


class _Watched:
    """A work that another thread waits for; ``wait`` waits for that thread."""

    def __init__(self) -> None:
        self._is_there = threading.Event()
        self.error: Exception | None = None

    def arrive(self) -> None:
        self._is_there.set()

    def wait(self) -> None:
        self._is_there.wait()
        if self.error is not None:
            raise self.error


def watched(works: Sequence[Any], note: Callable[[int], None]) -> list[_Watched]:
    """Starts a thread that waits for all works in order and calls ``note`` for each. Works cannot
    be polled, and only one thread may wait for each."""
    found = [_Watched() for _ in works]

    def watch() -> None:
        for number, (work, one) in enumerate(zip(works, found, strict=True)):
            try:
                work.wait()
            except Exception as error:
                one.error = error
            else:
                note(number)
            one.arrive()

    threading.Thread(target=watch, name="augury-arrivals", daemon=True).start()
    return found
