"""The replay semantics once more, written from the design's text in SimPy, to check engines by.

Every operation is a process and every resource a ``simpy.PriorityResource``. What the design asks
beyond SimPy, to drain all completions of a time stamp before granting anything, is an event
priority: whatever finishes, gets ready or assembles is a normal event, the round of grants is a
late one, and SimPy takes normal events first. Exclusive resources only.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from augury.core.enums import Discipline
from augury.core.graph.graph import Graph

PENDING = -1
LATE = 2
"""After ``simpy.events.URGENT`` (0) and ``NORMAL`` (1)."""

_by_key = attrgetter("key")


class _Queue(list[Any]):
    """Requests, best first; SimPy's own queue is sorted again at every arrival."""

    def append(self, request: Any) -> None:
        insort(self, request, key=_by_key)


class _Place(simpy.PriorityResource):
    """Grants nothing when a request or release comes in: it asks for a round of grants."""

    PutQueue = _Queue

    def __init__(self, rounds: _Rounds, width: int) -> None:
        super().__init__(rounds.env, capacity=width)
        self._rounds = rounds

    def _trigger_put(self, get_event: Any) -> None:  # noqa: ARG002
        if self.put_queue and self.count < self.capacity:
            self._rounds.ask(self)

    def grant(self) -> None:
        while self.put_queue and self.count < self.capacity:
            super()._trigger_put(None)


class _Round(simpy.Event):
    """Happens at the present time, once no normal event is left there."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=LATE)


class _Rounds:
    """One round of grants serves all resources at once, so that what a zero-work operation
    releases in it counts only in the next."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self._asking: set[_Place] = set()

    def ask(self, place: _Place) -> None:
        if not self._asking:
            _Round(self.env).callbacks.append(self._serve)
        self._asking.add(place)

    def _serve(self, _: simpy.Event) -> None:
        asking, self._asking = self._asking, set()
        for place in asking:
            place.grant()


def simulate(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When every operation was granted its place and when it ended; PENDING for never."""
    if not graph.is_exclusive:
        raise ValueError("this model knows exclusive resources only")
    env = simpy.Environment(0)
    rounds = _Rounds(env)
    resources = graph.resources
    places = [_Place(rounds, width) for width in resources.width.tolist()]
    is_fifo = (resources.discipline == Discipline.FIFO).tolist()
    assembled = [env.event() for _ in range(graph.num_gangs)]
    missing = np.diff(graph.gang_members.first).tolist()
    start = [PENDING] * graph.num_ops
    end = [PENDING] * graph.num_ops

    first, before = graph.predecessors.first.tolist(), graph.predecessors.dst.tolist()

    def operation(
        op: int, resource: int, priority: int, gang: int, work_ns: int
    ) -> Iterator[simpy.Event]:
        for edge in range(first[op], first[op + 1]):
            yield processes[before[edge]]
        if resource >= 0:
            key = (env.now, op) if is_fifo[resource] else (priority, env.now, op)
            request = places[resource].request(priority=key)
            yield request
        start[op] = env.now
        if gang >= 0:
            missing[gang] -= 1
            if missing[gang] == 0:
                assembled[gang].succeed()
            yield assembled[gang]
        yield env.timeout(work_ns)
        end[op] = env.now
        if resource >= 0:
            places[resource].release(request)

    ops = graph.ops
    rows = zip(
        ops.resource.tolist(),
        ops.priority.tolist(),
        ops.gang.tolist(),
        ops.work_ns.tolist(),
        strict=True,
    )
    processes = [env.process(operation(op, *row)) for op, row in enumerate(rows)]
    env.run()
    return np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)
