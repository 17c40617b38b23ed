"""Replay semantics in plain Python: the reference for the kernel's tests, and its fallback.

At one time stamp: drain all completions, and resolve operations without a resource and complete
gangs within the drain, transitively; then let every free place take its best ready operation; then
set the rates of all running operations. Repeat while operations end at the same time stamp.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from augury.core.enums import Discipline
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.replay.op_times import NO_CAUSE, PENDING, OpTimes, place_cause
from augury.replay.unroll import unroll


def simulate(graph: Graph, num_windows: int = 1) -> OpTimes:
    simulation = _Simulation(unroll(graph, num_windows))
    simulation.run()
    return OpTimes(
        np.array(simulation.start, dtype=np.int64),
        np.array(simulation.end, dtype=np.int64),
        np.array(simulation.cause, dtype=np.int32),
    )


class _Simulation:
    """State of a simulation. A *unit* starts, progresses and ends as one: an operation, or a whole
    gang. Gangs are numbered after the operations."""

    def __init__(self, graph: Graph) -> None:
        ops, resources = graph.ops, graph.resources
        self.num_ops = graph.num_ops
        self.resource = ops.resource.tolist()
        self.work = ops.work_ns.tolist()
        self.gang = ops.gang.tolist()
        self.priority = _effective_priority(graph)
        first, dst = graph.edges.first.tolist(), graph.edges.dst.tolist()
        self.successors = [dst[first[i] : first[i + 1]] for i in range(self.num_ops)]
        self.missing = np.bincount(graph.edges.dst, minlength=self.num_ops).tolist()
        self.members = [graph.gang_members.of(g).tolist() for g in range(graph.num_gangs)]
        self.ungranted = [len(members) for members in self.members]

        self.free = resources.width.tolist()
        self.waiting: list[list[tuple[int, int, int]]] = [[] for _ in self.free]
        self.touched: set[int] = set()
        self.freed_by: list[tuple[int, int]] = [(NO_CAUSE, NO_CAUSE)] * len(self.free)

        self.now = 0
        self.start = [PENDING] * self.num_ops
        self.end = [PENDING] * self.num_ops
        self.cause = [NO_CAUSE] * self.num_ops
        self.progress = _FixedRates() if graph.is_exclusive else _Rates(graph, self)

    def run(self) -> None:
        self.drain([], [op for op in range(self.num_ops) if self.missing[op] == 0])
        while True:
            self.dispatch()
            self.progress.set_rates(self.now)
            if not self.progress:
                return
            self.now = self.progress.next_end()
            self.drain(self.progress.take_ended(self.now), [])

    def drain(self, ended: list[int], ready: list[int]) -> None:
        while ended or ready:
            for op in ready:
                if self.resource[op] == NONE:
                    for unit in self.grant(op):
                        if self.work[op] == 0:
                            ended.append(unit)
                        else:
                            self.progress.begin(unit, self.work[op], self.now)
                else:
                    self.touched.add(self.resource[op])
                    key = (self.priority[op], self.now, op)
                    heappush(self.waiting[self.resource[op]], key)
            ready = []
            for unit in ended:
                for op in self.ops_of(unit):
                    self.complete(op, ready)
            ended = []

    def complete(self, op: int, ready: list[int]) -> None:
        self.end[op] = self.now
        resource = self.resource[op]
        if resource != NONE:
            self.free[resource] += 1
            self.touched.add(resource)
            when, by = self.freed_by[resource]
            self.freed_by[resource] = (self.now, min(op, by) if when == self.now else op)
        for successor in self.successors[op]:
            self.missing[successor] -= 1
            known = self.cause[successor]
            if known == NO_CAUSE or self.end[known] < self.now or op < known:
                self.cause[successor] = op
            if self.missing[successor] == 0:
                ready.append(successor)

    def dispatch(self) -> None:
        for resource in self.touched:
            waiting = self.waiting[resource]
            while waiting and self.free[resource]:
                _, ready_at, op = heappop(waiting)
                self.free[resource] -= 1
                if ready_at < self.now:
                    self.cause[op] = place_cause(self.freed_by[resource][1])
                # A unit without work ends at this time stamp, but in another round.
                for unit in self.grant(op):
                    self.progress.begin(unit, self.work[op], self.now)
        self.touched.clear()

    def grant(self, op: int) -> list[int]:
        """Gives ``op`` its place. Returns the unit that now progresses, if any."""
        self.start[op] = self.now
        gang = self.gang[op]
        if gang == NONE:
            return [op]
        self.ungranted[gang] -= 1
        return [] if self.ungranted[gang] else [self.num_ops + gang]

    def ops_of(self, unit: int) -> list[int]:
        return [unit] if unit < self.num_ops else self.members[unit - self.num_ops]


class _FixedRates:
    """Progress without sharing and interference: an end is known when its unit begins."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self.ends)

    def begin(self, unit: int, work_ns: int, now: int) -> None:
        heappush(self.ends, (now + work_ns, unit))

    def set_rates(self, now: int) -> None:
        pass

    def next_end(self) -> int:
        return self.ends[0][0]

    def take_ended(self, now: int) -> list[int]:
        ended = []
        while self.ends and self.ends[0][0] == now:
            ended.append(heappop(self.ends)[1])
        return ended


class _Rates:
    """Rate and remaining work of the units that progress, in units of 1 / RATE_ONE ns. A change of
    rate updates the ends of all units that it affects."""

    def __init__(self, graph: Graph, simulation: _Simulation) -> None:
        self.simulation = simulation
        self.capacity = graph.resources.capacity.tolist()
        self.rules: list[list[tuple[int, int]]] = [[] for _ in self.capacity]
        interference = graph.interference
        for victim, aggressor, rate in zip(
            interference.victim.tolist(),
            interference.aggressor.tolist(),
            interference.rate.tolist(),
            strict=True,
        ):
            self.rules[victim].append((aggressor, rate))
        self.progressing = [0] * len(self.capacity)
        self.rate: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.since: dict[int, int] = {}
        self.end: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.end)

    def begin(self, unit: int, work_ns: int, now: int) -> None:
        self.rate[unit] = 0  # not set yet
        self.left[unit] = work_ns * RATE_ONE
        self.since[unit] = now
        self.count(unit, 1)

    def next_end(self) -> int:
        return min(self.end.values())

    def take_ended(self, now: int) -> list[int]:
        ended = [unit for unit, end in self.end.items() if end == now]
        for unit in ended:
            for column in (self.rate, self.left, self.since, self.end):
                del column[unit]
            self.count(unit, -1)
        return ended

    def count(self, unit: int, change: int) -> None:
        for resource in self.resources_of(unit):
            self.progressing[resource] += change

    def resources_of(self, unit: int) -> list[int]:
        resource = self.simulation.resource
        return [resource[op] for op in self.simulation.ops_of(unit) if resource[op] != NONE]

    def set_rates(self, now: int) -> None:
        for unit, old in self.rate.items():
            rate = min((self.rate_on(r) for r in self.resources_of(unit)), default=RATE_ONE)
            if rate == old:
                continue
            self.left[unit] -= (now - self.since[unit]) * old
            self.since[unit] = now
            self.rate[unit] = rate
            self.end[unit] = now + max(0, -(-self.left[unit] // rate))

    def rate_on(self, resource: int) -> int:
        rate = RATE_ONE
        if self.capacity[resource]:
            rate = min(RATE_ONE, self.capacity[resource] // self.progressing[resource])
        for aggressor, factor in self.rules[resource]:
            if self.progressing[aggressor]:
                rate = rate * factor // RATE_ONE
        return max(rate, 1)


def _effective_priority(graph: Graph) -> list[int]:
    """Returns the priority; on a FIFO resource all operations have the same."""
    fifo = np.append(graph.resources.discipline == Discipline.FIFO, False)
    priority: list[int] = np.where(fifo[graph.ops.resource], 0, graph.ops.priority).tolist()
    return priority
