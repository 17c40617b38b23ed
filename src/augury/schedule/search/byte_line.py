"""An order of messages as one line of bytes with cuts, the representation of the search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import I4, I8
from augury.core.graph.graph import NONE
from augury.core.plan.plan import Order, Slice
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.flat_arrays import UNLIMITED_BYTES, FlatOrder, hold_ns, server_ns
from augury.schedule.order_parts import exchanged


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """All bytes in the order of sending: runs of one gradient each."""

    gradient: I4
    end_bytes: I8
    """End of each run, from the start of the line."""
    item_bytes: I8
    """Item size of the gradient of each run."""

    def aligned(self, positions: I8) -> I8:
        """Returns the nearest cuts at or before these positions that lie between items: rising,
        with the end of the line, without its start."""
        last = self.end_bytes[-1]
        inside = positions[(positions > 0) & (positions < last)]
        run = np.searchsorted(self.end_bytes, inside, side="left")
        begin = np.where(run > 0, self.end_bytes[run - 1], 0)
        whole = begin + (inside - begin) // self.item_bytes[run] * self.item_bytes[run]
        cuts: I8 = np.union1d(whole[whole > 0], last)
        return cuts

    def parts(self, cuts: I8) -> tuple[I4, I4, I8]:
        """Returns slices by message: the first slice of each message, gradients and sizes."""
        ends = np.union1d(self.end_bytes, cuts)
        gradient = self.gradient[np.searchsorted(self.end_bytes, ends, side="left")]
        first = np.zeros(len(cuts) + 1, np.int32)
        first[1:] = np.searchsorted(ends, cuts) + 1
        return first, gradient, np.diff(ends, prepend=0)


def flat_line(problem: Problem, line: Line, cuts: I8, back: I8 | None = None) -> FlatOrder:
    """``back``: with a parameter server, messages in the order in which they are pulled."""
    first, gradient, slice_bytes = line.parts(cuts)
    size_bytes = np.diff(cuts, prepend=0)
    number = len(cuts)
    network = problem.network
    after = np.full(number, NONE, np.int32)
    if network.scheme is Scheme.PARAMETER_SERVER:
        back = np.arange(number) if back is None else back
        counts = np.diff(first)
        starts = first[:-1][back]
        offsets = np.cumsum(counts[back]) - counts[back]
        again = np.repeat(starts - offsets, counts[back]) + np.arange(counts.sum())
        gradient = np.concatenate([gradient, gradient[again]])
        slice_bytes = np.concatenate([slice_bytes, slice_bytes[again]])
        first = np.concatenate([first, first[-1] + np.cumsum(counts[back])]).astype(np.int32)
        after = np.concatenate([after, back]).astype(np.int32)
        size_bytes = np.concatenate([size_bytes, size_bytes[back]])
    is_last = np.ones(len(after), np.uint8)
    is_last[: len(after) - number] = 0
    is_pull = after != NONE
    return FlatOrder(
        link=is_pull.astype(np.uint8),
        is_last=is_last,
        after=after,
        lag_ns=np.where(is_pull, server_ns(network, size_bytes), 0),
        not_before_ns=np.zeros(len(after), np.int64),
        hold_ns=hold_ns(network, size_bytes, 1),
        size_bytes=size_bytes,
        first=first,
        gradient=gradient,
        slice_bytes=slice_bytes,
        latency_ns=network.latency_ns,
        window_bytes=UNLIMITED_BYTES,
        has_barrier=False,
    )


def order_of_line(
    name: str, problem: Problem, line: Line, cuts: I8, back: I8 | None = None
) -> Order:
    first, gradient, slice_bytes = (values.tolist() for values in line.parts(cuts))
    sent_bytes = [0] * len(problem.gradients)
    slices = []
    for place, size_bytes in zip(gradient, slice_bytes, strict=True):
        slices.append(Slice(gradient=place, offset_bytes=sent_bytes[place], size_bytes=size_bytes))
        sent_bytes[place] += size_bytes
    messages = [tuple(slices[first[nth] : first[nth + 1]]) for nth in range(len(cuts))]
    return Order(
        policy=name,
        pieces=exchanged(problem, messages, back=None if back is None else back.tolist()),
        has_barrier=False,
    )
