"""Reads one Kineto trace of one rank: host threads, device streams, phases, collectives.

The same reader serves the windows of a recorded run and the traces of other profilers. A recorded
run adds the facts of its rank record afterwards (``rank/recorded_rank.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase, StreamKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.ingest.collectives.rank_collectives import Collective, find_collectives
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.kernel_launches import link_launches
from augury.ingest.rank.phases_and_layers import layers, phases
from augury.ingest.trace_builder import MutableEvents, TraceBuilder
from augury.ingest.vocabulary.torch import OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD, PROFILER_STEP


@dataclass(kw_only=True)
class KinetoRank:
    """Events of one trace; rows are those of the trace."""

    trace: KinetoTrace
    main_thread: int
    events: MutableEvents
    layer: list[str]
    """Layer of each host event; empty where unknown."""
    collectives: list[Collective]

    def fill_names(self, builder: TraceBuilder) -> None:
        """Gives each event its name and layer; a kernel has the layer of its launch."""
        number = builder.strings.number
        self.events.name[:] = [number(name) for name in self.trace.name]
        self.events.layer[:] = [number(layer) if layer else NONE for layer in self.layer]
        if any(self.layer):
            launched = np.flatnonzero(self.trace.is_on_device & (self.events.cause != NONE))
            causes = self.events.cause[launched].tolist()
            self.events.layer[launched] = [self._layer_around(row) for row in causes]

    def _layer_around(self, row: int) -> int:
        """Layer of the innermost event around ``row`` that has one."""
        while row != NONE and self.events.layer[row] == NONE:
            row = int(self.trace.parent[row])
        return NONE if row == NONE else int(self.events.layer[row])

    def fill_streams(self, rank: int, rows: NDArray[np.bool_], builder: TraceBuilder) -> None:
        """Puts ``rows`` on the streams of their threads and devices."""
        communicates = np.zeros(len(self.trace), dtype=bool)
        communicates[[item.row for item in self.collectives]] = True
        for at in np.unique(self.trace.thread[rows]).tolist():
            thread = self.trace.threads[at]
            own = self.trace.thread == at
            if not thread.is_device:
                is_main = at == self.main_thread
                kind = StreamKind.MAIN_THREAD if is_main else StreamKind.THREAD
                name = "main thread" if is_main else thread.name
            else:
                # Copies into buffers run beside collectives: most events decide.
                is_communication = communicates[own].mean() > 0.5
                kind = StreamKind.COMMUNICATION if is_communication else StreamKind.DEVICE
                name = f"device {thread.pid} stream {thread.tid}"
            self.events.stream[own] = builder.stream(rank, kind, name)


def read_kineto_rank(trace: KinetoTrace, step: I4, ledger: Ledger) -> KinetoRank:
    """``step`` is the step of each event by its own time; kernels get the step of their launch."""
    events = MutableEvents.blank(trace.start_ns, trace.dur_ns)
    phase = phases(trace)
    events.phase[:] = phase
    events.step[:] = step
    link_launches(events, trace, ledger)
    kinds = np.array([KIND_OF_PHASE[each] for each in Phase], dtype=np.uint8)
    unnamed = events.kind == OpKind.OTHER
    events.kind[unnamed] = kinds[events.phase[unnamed]]
    return KinetoRank(
        trace=trace,
        main_thread=main_thread(trace),
        events=events,
        layer=layers(trace, phase),
        collectives=find_collectives(trace, events),
    )


def main_thread(trace: KinetoTrace) -> int:
    """The thread that updates parameters; else the host thread with the most events."""
    for prefix in (OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD, PROFILER_STEP):
        row = next(trace.named(prefix), None)
        if row is not None:
            return int(trace.thread[row])
    counts = np.bincount(trace.thread, minlength=len(trace.threads))
    counts[[thread.is_device for thread in trace.threads]] = -1
    return int(counts.argmax())
