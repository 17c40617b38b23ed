"""The least step that messages of any number and size allow, with its proof.

Jobs are bytes. Each has a head (its release), work (the time it holds the link) and a tail (the
time from its arrival to the end of the step). Every message costs an overhead beside the work that
it carries, and starts when all of that is released. To remove jobs, or parts of them, or to move
heads and deadlines further apart, never makes the least step longer.

Let c be the last head. Those with an earlier one are B, the others are R. With a step in mind, a
tail means a deadline; B(D) and R(D) are the work in B and R that is due by D.

**Before c.** Let V be the most work that messages can carry that end by c. They may be taken to
start at heads, each to end where the next one starts: let one that starts between two heads start
at the first of them and the one before it end there; what that no longer carries, this one can; of
two between the same heads make one. Such messages carry v if, from each of them on, what is there
at its start and the time until c less the overheads behind it make up for v (``_can_carry``).

**From c on.** If some message is on its way at c, and ends at c + y, then those that have started
carry at most V + y: end it at c, or forget it if less than an overhead of it lies before c. All
later ones, the i-th ending at e(i), have carried at most e(i) - c - y - i overheads by then, and
what is due by D is carried by those with e(i) <= D. So for every D that has work left there is a
message i that ends by D with

    e(i) - c - i overheads  >=  y + R(D) + max(0, B(D) - V - y)  >=  R(D) + max(0, B(D) - V)

and if nothing is left by that D though B(D) > V, because R(D) is empty, an overhead more before c
lets a message that ends at c + y carry it. The least step for which such e(i) exist follows by
bisection: it is best to end each message at the first deadline that the ones before it leave open,
for a later end carries more (``_is_enough``).

**Two links in a row**, each message for the same time on both, as with a parameter server. Of n
messages that carry L in all, let k be the longest, and l the one that is first on the second link
among k and those behind k on the first. Whatever is behind l on the first link is behind l on the
second too; k is not behind l on the first and not before l on the second. So the path over the
first link up to l and over the second from l on has every message at least once, and k twice:

    n + 1 overheads + L (1 + 1 / n)   at least, from the first start to the last end.

This is asked of every D: of all work that is due by then, from the first head on, and of
R(D) + max(0, B(D) - V) from c on, less the overhead of the message that is on its way at c. And the
second link by itself has to carry the latter, from c on, as above.

All of this holds with time turned round, heads being tails and tails heads.
"""

from __future__ import annotations

from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

try:
    from augury._native import least_step as _in_the_kernel
except ImportError:  # no compiler where this was installed
    _in_the_kernel = None  # type: ignore[assignment]

Floats = NDArray[np.float64]


def least_step(
    head_ns: Floats,
    tail_ns: Floats,
    work_ns: Floats,
    overhead_ns: float,
    *,
    is_pipelined: bool,
    at_least_ns: float,
) -> float:
    """Heads must not fall. ``at_least_ns`` if that is enough: of many sets of jobs, only those
    that need more take time."""
    if _in_the_kernel is not None:
        return _in_the_kernel(head_ns, tail_ns, work_ns, overhead_ns, is_pipelined, at_least_ns)
    return LeastStep(head_ns, tail_ns, work_ns, overhead_ns, is_pipelined).run(at_least_ns)


class LeastStep:
    """In Python: what the kernel does, step by step."""

    def __init__(
        self,
        head_ns: Floats,
        tail_ns: Floats,
        work_ns: Floats,
        overhead_ns: float,
        is_pipelined: bool,
    ) -> None:
        self.overhead_ns = overhead_ns
        self.is_pipelined = is_pipelined
        heads, first = np.unique(head_ns, return_index=True)
        self.head_ns: list[float] = heads.tolist()
        self.released_ns: list[float] = np.cumsum(np.add.reduceat(work_ns, first)).tolist()
        by_urgency = np.lexsort((-head_ns, -tail_ns))
        self.tail_ns: list[float] = tail_ns[by_urgency].tolist()
        self.whole_ns: list[float] = work_ns[by_urgency].tolist()
        is_late = head_ns[by_urgency] == heads[-1]
        carried_ns = self._carried()
        left_ns = np.where(is_late, 0.0, self.whole_ns)
        left_ns = np.clip(np.cumsum(left_ns) - carried_ns, 0.0, left_ns)
        self.left_ns: list[float] = np.where(is_late, self.whole_ns, left_ns).tolist()
        has_head_start = is_pipelined or not is_late[0]
        self.begin_ns = self.head_ns[-1] - (overhead_ns if has_head_start else 0.0)

    def run(self, at_least_ns: float) -> float:
        if self._is_enough(at_least_ns):
            return at_least_ns
        low = at_least_ns
        high = max(low, self.head_ns[-1]) + 4 * self.overhead_ns + 2 * sum(self.whole_ns)
        high += self.tail_ns[0]
        while high - low > max(0.25, 1e-9 * high):
            middle = (low + high) / 2
            low, high = (low, middle) if self._is_enough(middle) else (middle, high)
        return low

    def _carried(self) -> float:
        """The most that messages carry that end by the last head, or slightly more."""
        if len(self.head_ns) == 1:
            return 0.0
        low, high = 0.0, min(self.released_ns[-2], self.head_ns[-1] - self.head_ns[0])
        if self._can_carry(high):
            return high
        while high - low > max(0.25, 1e-9 * high):
            middle = (low + high) / 2
            low, high = (middle, high) if self._can_carry(middle) else (low, middle)
        return high

    def _can_carry(self, carried_ns: float) -> bool:
        end_ns = self.head_ns[-1]
        earliest_ns: list[float] = []  # by the number of messages from there on, less one
        for head_ns, released_ns in zip(
            self.head_ns[-2::-1], self.released_ns[-2::-1], strict=True
        ):
            count = 0
            if released_ns < carried_ns:
                free_ns = end_ns - (carried_ns - released_ns)
                enough = (
                    nth
                    for nth, next_ns in enumerate(earliest_ns)
                    if next_ns + self.overhead_ns * (nth + 1) <= free_ns
                )
                count = next(enough, -1) + 1
                if count == 0:
                    continue
            if head_ns + self.overhead_ns * (count + 1) + carried_ns <= end_ns:
                return True
            earliest_ns[count : count + 1] = [head_ns]
        return False

    def _is_enough(self, step_ns: float) -> bool:
        free_ns = self.begin_ns + (self.overhead_ns if self.is_pipelined else 0.0)
        room_ns = whole_ns = left_ns = 0.0
        for tail_ns, job_ns, rest_ns in zip(self.tail_ns, self.whole_ns, self.left_ns, strict=True):
            due_ns = step_ns - tail_ns
            whole_ns += job_ns
            left_ns += rest_ns
            if self.is_pipelined and (
                self.head_ns[0] + self._in_a_row(whole_ns) > due_ns
                or (rest_ns > 0 and self.begin_ns + self._in_a_row(left_ns) > due_ns)
            ):
                return False
            if rest_ns <= room_ns:
                room_ns -= rest_ns
                continue
            room_ns = due_ns - free_ns - self.overhead_ns - (rest_ns - room_ns)
            if room_ns < 0:
                return False
            free_ns = due_ns
        return True

    def _in_a_row(self, work_ns: float) -> float:
        """Over two links, by the best number of messages."""
        fewer = max(1, floor(sqrt(work_ns / max(self.overhead_ns, 1e-9))))
        return min(
            self.overhead_ns * (count + 1) + work_ns * (1 + 1 / count)
            for count in (fewer, fewer + 1)
        )
