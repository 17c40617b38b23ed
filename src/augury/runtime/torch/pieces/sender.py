"""Sends the pieces of an Order, strictly in its order, as soon as their gradients are released.

All ranks follow one list, so collectives are issued in the same order on all of them, whichever
thread issues them. Gloo's threads limit the number of pieces in flight. A second half (ALL_GATHER)
is issued once its first half has arrived, by the thread of gloo that completes it. Two ranks use
no collectives (``p2p_exchange.py``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from augury.core.enums import OpKind
from augury.core.plan.plan import FIRST_OPS, LAST_OPS, CommunicationSection, Order
from augury.runtime.meter import Meter
from augury.runtime.torch.pieces.buffers import PieceBuffers
from augury.runtime.torch.pieces.p2p_exchange import PeerExchange
from augury.runtime.torch.ranks.groups import PieceGroup

LOOK_AHEAD = 4
"""Number of pending pieces that are polled: gloo works on two at a time."""


class Sender:
    def __init__(
        self,
        section: CommunicationSection,
        buffers: PieceBuffers,
        group: PieceGroup,
        meter: Meter,
        *,
        on_issue: Callable[[Sequence[int]], None],
        on_arrival: Callable[[Any, Sequence[int]], None],
        epoch: int,
    ) -> None:
        """``on_issue`` is called with the gradients whose shares a piece is about to take from the
        buffers; ``on_arrival`` by the main thread, with the arrived piece and the gradients that
        it completes; ``epoch``: number of earlier senders, the same on all ranks."""
        self._order: Order = section.order
        self._buffers = buffers
        self._group = group
        self._peer = PeerExchange(group, buffers, epoch) if buffers.is_apart else None
        self._meter = meter
        self._on_issue, self._on_arrival = on_issue, on_arrival
        pieces = self._order.pieces
        num_gradients = len(section.problem.gradients)
        members = [sorted({part.gradient for part in piece.slices}) for piece in pieces]
        self._members = members
        self._first_pieces: list[list[int]] = [[] for _ in range(num_gradients)]
        self._num_last = [0] * num_gradients
        for number, piece in enumerate(pieces):
            for gradient in members[number]:
                if piece.op in FIRST_OPS:
                    self._first_pieces[gradient].append(number)
                if piece.op in LAST_OPS:
                    self._num_last[gradient] += 1
        self._num_missing = [
            len(inside) if piece.op in FIRST_OPS else 0
            for piece, inside in zip(pieces, members, strict=True)
        ]
        self._has_halves = any(piece.op is OpKind.REDUCE_SCATTER for piece in pieces)
        self._lock = threading.RLock()
        self._reset(0)

    def begin(self, start_ns: int) -> None:
        """Begins a step: no gradient is released yet."""
        self.finish()
        self._reset(start_ns)
        if self._peer is not None:
            self._meter.work(self._peer.begin, self._meter.arrivals())

    def _reset(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._next = 0
        self._missing = [*self._num_missing]
        self._left = [*self._num_last]
        self._works: list[Sequence[Any]] = [()] * len(self._order.pieces)
        self._is_summed: set[int] = set()
        self._open = list(range(len(self._order.pieces)))
        self.waiting_for = set(range(len(self._left)))
        """Gradients that backward has not computed yet."""

    @property
    def can_poll(self) -> bool:
        """Whether pending pieces can be polled; otherwise only waiting shows their arrival."""
        return self._peer is None

    @property
    def is_done(self) -> bool:
        return not self._open

    @property
    def unsent(self) -> list[int]:
        """First pieces that were not sent."""
        pieces = self._order.pieces
        return [n for n in range(self._next, len(pieces)) if pieces[n].op in FIRST_OPS]

    def put(self, gradient: int) -> None:
        """Backward has computed a gradient."""
        self.waiting_for.discard(gradient)
        for number in self._first_pieces[gradient]:
            self._missing[number] -= 1
        if self._next < len(self._missing) and not self._missing[self._next]:
            self.advance()

    def lay_down(self, gradients: Sequence[int]) -> None:
        """Stores the shares of these gradients, whether their pieces can be sent or not."""
        with self._lock:
            self._on_issue(gradients)

    def lay_down_rest(self) -> None:
        """Stores the shares of all pieces that were not sent."""
        with self._lock:
            for number in self.unsent:
                self._on_issue(self._members[number])

    def advance(self, at_once: bool = False) -> None:
        """Issues all pieces that may be issued; ``at_once``: ignores ``not_before_ns``."""
        pieces = self._order.pieces
        with self._lock:
            while self._next < len(pieces) and not self._missing[self._next]:
                number, piece = self._next, pieces[self._next]
                if piece.op is OpKind.ALL_GATHER and piece.after not in self._is_summed:
                    return
                if piece.not_before_ns and not at_once and self._is_early(piece.not_before_ns):
                    return  # checked again at the next gradient
                # Counted first: a piece may arrive while it is issued, which calls this again.
                self._next += 1
                self._issue(number, piece.op)

    def _is_early(self, not_before_ns: int) -> bool:
        return time.perf_counter_ns() - self._start_ns < not_before_ns

    def _issue(self, number: int, op: OpKind) -> None:
        if op in FIRST_OPS:
            self._meter.work(self._on_issue, self._members[number])
        if self._peer is not None:
            self._meter.note_issue(number)
            self._works[number] = [self._meter.work(self._peer.send, number)]
            return
        if op is OpKind.ALL_REDUCE:
            works = [self._group.all_reduce(self._buffers.pieces[number])]
        elif op is OpKind.REDUCE_SCATTER:
            # Gloo's own reduce-scatter moves the bytes of an all-reduce.
            halves = self._buffers.halves[number]
            works = [self._group.all_to_all(half.shares, half.whole) for half in halves]
        else:
            halves = self._buffers.halves[number]
            works = [self._group.all_gather(half.whole, half.own) for half in halves]
        self._works[number] = works
        self._meter.note_issue(number)
        done: list[Callable[[], None]] = []
        noted = self._meter.arrivals()
        if noted is not None:
            done.append(partial(noted, number))
        if op is OpKind.REDUCE_SCATTER:
            done.append(partial(self._sum, number))
        if done:
            _when_all(works, done)

    def _sum(self, number: int) -> None:
        with self._lock:
            if number in self._is_summed:
                return
            for half in self._buffers.halves[number]:
                torch.add(half.shares[0], half.shares[1], out=half.own)
                for share in half.shares[2:]:
                    half.own.add_(share)
            self._is_summed.add(number)
            self.advance(not self.waiting_for)

    def poll(self) -> None:
        """Handles arrived pieces without waiting; only if ``can_poll``."""
        for number in self._open[:LOOK_AHEAD]:
            works = self._works[number]
            if not works:
                return
            if all(has_ended(work) for work in works):
                self._arrive(number)

    def wait_next(self) -> None:
        """Waits for the first pending piece of the list. All gradients must have been put."""
        number = self._open[0]
        if not self._works[number]:
            self.advance(True)
        self._arrive(number)

    def _arrive(self, number: int) -> None:
        for work in self._works[number]:
            self._meter.wait(number, work.wait)  # raises the error of the work
        if self._order.pieces[number].op is OpKind.REDUCE_SCATTER:
            self._sum(number)
        elif self._order.pieces[number].op in LAST_OPS:
            left = self._left
            for gradient in self._members[number]:
                left[gradient] -= 1
            brought = self._buffers.arriving[number]
            self._on_arrival(brought, [n for n in self._members[number] if not left[n]])
        self._open.remove(number)

    def finish(self) -> None:
        """Waits until the memory of sent pieces may be reused, after all pieces have arrived."""
        if self._peer is not None:
            self._meter.work(self._peer.end)


def has_ended(work: Any) -> bool:
    """Whether a communication is over, without waiting.

    ``work.is_completed()`` takes the work's lock and keeps the interpreter's. Under a profiler, the
    thread that ends the work holds the first and may need the second: a deadlock.
    """
    return bool(work.get_future().done())


def _when_all(works: Sequence[Any], actions: Sequence[Callable[[], None]]) -> None:
    """Runs actions in the thread that completes the last of the works: with several lanes, messages
    of one piece overtake each other. After a failure nothing runs: waiting raises the error."""
    lock = threading.Lock()
    left = len(works)

    def completed(future: Any) -> None:
        nonlocal left
        try:
            future.value()
        except RuntimeError:
            return
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            for action in actions:
                action()

    for work in works:
        work.get_future().add_done_callback(completed)
