"""The policy `prophet`, as published."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

from augury.core.plan.plan import Order, Slice
from augury.core.plan.problem import Problem
from augury.schedule.order_parts import Message, cut, exchanged, gather, release_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Prophet:
    """Published: gradients are released in bursts, separated by gaps of more than twice the mean
    gap. After burst k, the most urgent waiting bytes are sent as one block, as many as the known
    bandwidth carries until burst k + 1; the rest waits. After the last burst, which has the most
    urgent gradient, the rest is sent by priority, in blocks. Only pushes are scheduled, pulls
    follow them; forward waits layer by layer; messages cost nothing beyond their bytes.

    Assumed: tensors are cut at 4,096,000 bytes, as BytePS, on which it was built, does; a block
    is one message and ends before the first partition that does not fit; blocks of the last phase
    are of partition size, and none has gradients of two bursts; with all-reduce, blocks are
    all-reduced in the same order.
    """

    name: str = "prophet"
    partition_bytes: int = 4_096_000
    gap_factor: float = 2.0

    def compile(self, problem: Problem) -> Order:
        bursts = self.bursts(problem)
        blocks: list[tuple[Message, int]] = []
        waiting: list[Slice] = []
        for burst, following in pairwise(bursts):
            waiting = self._with(problem, burst, waiting)
            there_ns = problem.gradients[burst[-1]].release_ns
            gap_ns = problem.gradients[following[0]].release_ns - there_ns
            block = _fitting(waiting, gap_ns, problem.network.ns_per_byte)
            if block:
                blocks.append((block, there_ns))
                waiting = waiting[len(block) :]
        waiting = self._with(problem, bursts[-1], waiting)
        last_ns = problem.gradients[bursts[-1][-1]].release_ns
        burst_of = {place: nth for nth, burst in enumerate(bursts) for place in burst}
        for _, slices in groupby(waiting, key=lambda part: burst_of[part.gradient]):
            blocks += [(block, last_ns) for block in gather(slices, self.partition_bytes)]
        return Order(
            policy=self.name,
            pieces=exchanged(
                problem,
                [block for block, _ in blocks],
                not_before_ns=[start_ns for _, start_ns in blocks],
            ),
            has_barrier=False,
        )

    def bursts(self, problem: Problem) -> list[list[int]]:
        """Returns bursts of gradients in the order of release."""
        coming = release_order(problem)
        releases_ns = [problem.gradients[place].release_ns for place in coming]
        whole_ns = releases_ns[-1] - releases_ns[0]
        bursts = [coming[:1]]
        for place, (before_ns, release_ns) in zip(coming[1:], pairwise(releases_ns), strict=True):
            if (release_ns - before_ns) * (len(coming) - 1) > self.gap_factor * whole_ns:
                bursts.append([])
            bursts[-1].append(place)
        return bursts

    def _with(self, problem: Problem, burst: list[int], waiting: list[Slice]) -> list[Slice]:
        """Returns all waiting slices, the most urgent first."""
        come = [part for place in burst for part in cut(problem, place, self.partition_bytes)]
        return sorted([*come, *waiting], key=lambda part: (part.gradient, part.offset_bytes))


def _fitting(waiting: list[Slice], gap_ns: int, ns_per_byte: float) -> Message:
    count = carried_bytes = 0
    for part in waiting:
        carried_bytes += part.size_bytes
        if carried_bytes * ns_per_byte > gap_ns:
            break
        count += 1
    return tuple(waiting[:count])
