"""Memory of the graph of a recorded run: what each rank holds, from which operation to which.

Parameters, optimizer state and buckets are held all the time. Activations live from the forward of
their pass through the model to the end of the backward of their module. Gradients that the program
clears live from the operation that makes them to the next clearing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from augury.build.recorded.recorded_run import Place, RecordedRun
from augury.build.recorded.thread_segments import ThreadSegment
from augury.core.enums import MemoryKind, OpKind, StepState
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import CLEARS_GRADIENTS, ZEROES


def add_memory(
    builder: GraphBuilder,
    run: RecordedRun,
    row_of: Mapping[int, int],
    ops: Mapping[Place, list[int]],
) -> None:
    """Adds the recorded memory of each rank. ``ops`` are the operations of the segments."""
    memory = run.trace.memory
    for rank, row in row_of.items():
        rows = np.flatnonzero(memory.rank == rank)
        if not len(rows):
            continue
        own = _RankMemory(builder, run, rank, row, ops)
        for number in rows.tolist():
            kind, size = MemoryKind(int(memory.kind[number])), int(memory.size_bytes[number])
            layer = run.trace.strings[int(memory.layer[number])]
            if kind == MemoryKind.ACTIVATION:
                own.add_activation(layer, size)
            elif kind == MemoryKind.GRADIENT and own.clears_gradients:
                own.add_gradient(layer, size)
            else:
                own.add_held(kind, layer, size)
        own.add_buckets()


@dataclass(slots=True)
class _Pass:
    """One forward and backward within a step."""

    forward: int
    """Its first operation."""
    backward: int = NONE
    """Its first operation; NONE without a backward."""
    end: int = NONE
    """The last operation of backward."""
    begin_of: dict[str, int] = field(default_factory=dict)
    """The first operation of the backward of each layer."""
    end_of: dict[str, int] = field(default_factory=dict)
    """The last one."""

    def end_of_layer(self, layer: str) -> int:
        """Returns the operation after which a layer needs its activations no more: that of the
        smallest module around it if it has none of its own."""
        if layer in self.end_of:
            return self.end_of[layer]
        module = layer
        while module:
            inside = [op for path, op in self.end_of.items() if path.startswith(f"{module}.")]
            if inside:
                return max(inside)
            module = module.rpartition(".")[0]
        return self.end


class _RankMemory:
    def __init__(
        self,
        builder: GraphBuilder,
        run: RecordedRun,
        rank: int,
        row: int,
        ops: Mapping[Place, list[int]],
    ) -> None:
        self._builder, self._run, self._rank, self._row = builder, run, rank, row
        steps = [
            list(zip(run.segments[rank, step], ops[rank, step], strict=True)) for step in run.steps
        ]
        self._passes = [_passes(step) for step in steps]
        self._clearings = [
            [op for segment, op in step if segment.name.startswith(CLEARS_GRADIENTS)]
            for step in steps
        ]
        self._made_by = [
            {segment.gradient: op for segment, op in step if segment.gradient >= 0}
            for step in steps
        ]
        self._number_of = {name: number for number, name in enumerate(run.buckets[rank].names)}
        self._has_views = _has_views(run.trace, rank)
        self.clears_gradients = (
            self._has_views is not True
            and all(self._clearings)
            and all(self._passes)
            and clears_gradients(run.trace, rank)
        )

    def add_held(self, kind: MemoryKind, layer: str, size_bytes: int) -> None:
        self._builder.buffer(size_bytes, rank=self._row, kind=kind, layer=layer or None)

    def add_activation(self, layer: str, size_bytes: int) -> None:
        """While backward runs a layer, the gradients of its activations take as much again."""
        for one in [one for passes in self._passes for one in passes if one.end != NONE]:
            end = one.end_of_layer(layer)
            lives = [(MemoryKind.ACTIVATION, one.forward, end)]
            if layer in one.begin_of:
                lives.append((MemoryKind.WORKSPACE, one.begin_of[layer], end))
            for kind, taken_by, given_by in lives:
                self._builder.buffer(
                    size_bytes,
                    rank=self._row,
                    kind=kind,
                    layer=layer or None,
                    taken_by=taken_by,
                    given_by=given_by,
                )

    def add_gradient(self, name: str, size_bytes: int) -> None:
        """The first pass of a step makes a gradient. The others make one that they add to it."""
        clearings = [op for step in self._clearings for op in step]
        made = [self._first_made(step, name) for step in range(len(self._passes))]
        first = min((op for op in made if op != NONE), default=NONE)
        if first == NONE or clearings[0] < first:
            self._add_gradient(name, size_bytes, NONE, clearings[0])
        for op in made:
            if op != NONE:
                cleared = next((one for one in clearings if one > op), NONE)
                self._add_gradient(name, size_bytes, op, cleared)
        for op in [op for step in range(len(made)) for op in self._added_by(step, name)]:
            self._add_gradient(name, size_bytes, op, op)

    def _add_gradient(self, name: str, size_bytes: int, taken_by: int, given_by: int) -> None:
        self._builder.buffer(
            size_bytes,
            rank=self._row,
            kind=MemoryKind.GRADIENT,
            layer=name or None,
            taken_by=taken_by,
            given_by=given_by,
        )

    def _first_made(self, step: int, name: str) -> int:
        """Returns the operation that makes a gradient in a step; NONE if none does."""
        one = next((one for one in self._passes[step] if one.end != NONE), None)
        if one is None:
            return NONE
        made = self._made_by[step].get(self._number_of.get(name, NONE), NONE)
        # With several passes, the recorded one is the last: the first one has the same layers.
        if made != NONE and made <= one.end:
            return made
        module = name.rpartition(".")[0]
        return one.end_of_layer(module) if module else one.backward

    def _added_by(self, step: int, name: str) -> list[int]:
        """Returns the operations of a step that add to a gradient that exists."""
        later = [one for one in self._passes[step] if one.end != NONE][1:]
        module = name.rpartition(".")[0]
        return [one.end_of_layer(module) if module else one.end for one in later]

    def add_buckets(self) -> None:
        """DDP keeps its buckets; gradients are views into them, or have memory of their own."""
        if self._has_views is not False:
            return
        buckets = self._run.buckets[self._rank]
        for members in buckets.members:
            size_bytes = sum(buckets.size_bytes[i] for i in members)
            self.add_held(MemoryKind.COMMUNICATION, "", size_bytes)


def _passes(step: list[tuple[ThreadSegment, int]]) -> list[_Pass]:
    """Returns the passes of a step: one begins where forward follows a backward."""
    found: list[_Pass] = []
    for segment, op in step:
        if segment.kind == OpKind.FORWARD and (not found or found[-1].backward != NONE):
            found.append(_Pass(forward=op))
        elif segment.kind == OpKind.BACKWARD and found:
            one = found[-1]
            one.backward = op if one.backward == NONE else one.backward
            one.end = op
            if segment.layer:
                one.begin_of.setdefault(segment.layer, op)
                one.end_of[segment.layer] = op
    return found


def _has_views(trace: Trace, rank: int) -> bool | None:
    """Whether DDP's gradients are views into its buckets; None if that is unknown."""
    facts = next((facts for facts in trace.ranks if facts.rank == rank), None)
    return None if facts is None else facts.gradient_as_bucket_view


def clears_gradients(trace: Trace, rank: int) -> bool:
    """Whether the optimizer clears gradients by giving their memory back, as it does by default,
    rather than by setting them to zero. Looks at the detailed steps; False without any."""
    events, steps, own = trace.events, trace.steps, trace.of_rank(rank)
    rows = np.arange(own.start, own.stop)
    inside = np.zeros(len(rows), dtype=bool)
    detailed = np.flatnonzero((steps.rank == rank) & (steps.state == StepState.DETAILED))
    for step in detailed.tolist():
        inside |= (events.start_ns[rows] >= steps.start_ns[step]) & (
            events.start_ns[rows] < steps.end_ns[step]
        )
    rows = rows[inside]
    names = {number: trace.strings[number] for number in set(events.name[rows].tolist())}
    clearing = [number for number, name in names.items() if name.startswith(CLEARS_GRADIENTS)]
    zeroing = [number for number, name in names.items() if name in ZEROES]
    clearing_rows = rows[np.isin(events.name[rows], clearing)]
    zeroing_rows = rows[np.isin(events.name[rows], zeroing)]
    return (
        bool(len(clearing_rows)) and not np.isin(events.parent[zeroing_rows], clearing_rows).any()
    )
