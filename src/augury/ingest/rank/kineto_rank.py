"""Reads one Kineto trace of one rank: host threads, device streams, phases, collectives.

The same reader serves the windows of a recorded run and the traces of other profilers. A recorded
run adds the facts of its rank record afterwards (``rank/recorded_rank.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase, StreamKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.core.string_table import StringColumn
from augury.core.vocabulary.torch import OPTIMIZER_STEP
from augury.ingest.ancestors import inherit
from augury.ingest.collectives.rank_collectives import Collective, find_collectives
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.device_phases import fill_host_phases, fill_kernel_phases
from augury.ingest.rank.kernel_launches import link_launches
from augury.ingest.rank.module_layers import with_module_layers
from augury.ingest.rank.phases_and_layers import layers, phases
from augury.ingest.rank.training_in_forward import end_forward_at_backward
from augury.ingest.trace_builder import MutableEvents, TraceBuilder
from augury.ingest.vocabulary.torch import OPTIMIZER_ZERO_GRAD, PROFILER_STEP

_MAX_COPIES = 4
"""Most copies for each collective of a stream that communicates for most of its time."""


@dataclass(kw_only=True)
class KinetoRank:
    """Events of one trace; rows are those of the trace."""

    trace: KinetoTrace
    main_thread: int
    events: MutableEvents
    layer: StringColumn
    """Layer of each host event; empty where unknown."""
    collectives: list[Collective]

    def set_layers(self, layers: Mapping[int, str]) -> None:
        """Sets the layers of some rows."""
        number = self.layer.number.copy()
        number[list(layers)] = len(self.layer.strings) + np.arange(len(layers))
        self.layer = StringColumn(number, [*self.layer.strings, *layers.values()])

    def fill_names(self, builder: TraceBuilder) -> None:
        """Gives each event its name and layer; a kernel has the layer of its launch."""
        self.events.name[:] = builder.numbers(self.trace.name)
        layer = builder.numbers(self.layer)
        if (layer != NONE).any():
            launched = np.flatnonzero(self.trace.is_on_device & (self.events.cause != NONE))
            around = inherit(self.trace.parent, layer == NONE, layer)
            layer[launched] = around[self.events.cause[launched]]
        self.events.layer[:] = layer

    def fill_streams(self, rank: int, rows: NDArray[np.bool_], builder: TraceBuilder) -> None:
        """Puts ``rows`` on the streams of their threads and devices."""
        threads, num_threads = self.trace.thread, len(self.trace.threads)
        communicates = self._communicating_threads()
        stream = np.full(num_threads, NONE, dtype=np.int32)
        for at in np.unique(threads[rows]).tolist():
            thread = self.trace.threads[at]
            if not thread.is_device:
                is_main = at == self.main_thread
                kind = StreamKind.MAIN_THREAD if is_main else StreamKind.THREAD
                name = "main thread" if is_main else thread.name
            else:
                kind = StreamKind.COMMUNICATION if communicates[at] else StreamKind.DEVICE
                name = f"device {thread.pid} stream {thread.tid}"
            stream[at] = builder.stream(rank, kind, name)
        own = stream[threads]
        self.events.stream[:] = np.where(own != NONE, own, self.events.stream)

    def _communicating_threads(self) -> NDArray[np.bool_]:
        """Marks the streams that run collectives, beside copies into and out of their buffers: most
        events decide, and most of the time if there are few copies for each collective."""
        threads, num_threads = self.trace.thread, len(self.trace.threads)
        rows = np.array([item.row for item in self.collectives], dtype=np.int64)
        num_collectives = np.bincount(threads[rows], minlength=num_threads)
        num_others = np.bincount(threads, minlength=num_threads) - num_collectives
        transfer_ns = np.bincount(threads[rows], self.trace.dur_ns[rows], num_threads)
        other_ns = np.bincount(threads, self.trace.dur_ns, num_threads) - transfer_ns
        has_few_copies = num_others <= _MAX_COPIES * num_collectives
        return (num_collectives > num_others) | (has_few_copies & (transfer_ns > other_ns))


def read_kineto_rank(trace: KinetoTrace, step: I4, ledger: Ledger) -> KinetoRank:
    """``step`` is the step of each event by its own time; kernels get the step of their launch."""
    trace = end_forward_at_backward(trace)
    events = MutableEvents.blank(trace.start_ns, trace.dur_ns)
    phase = fill_host_phases(trace, phases(trace))
    events.phase[:] = phase
    events.step[:] = step
    link_launches(events, trace, ledger)
    fill_kernel_phases(events, trace)
    kinds = np.array([KIND_OF_PHASE[each] for each in Phase], dtype=np.uint8)
    unnamed = events.kind == OpKind.OTHER
    events.kind[unnamed] = kinds[events.phase[unnamed]]
    layer = layers(trace, phase)
    if trace.is_on_device.any():
        layer = with_module_layers(trace, layer)
    return KinetoRank(
        trace=trace,
        main_thread=main_thread(trace),
        events=events,
        layer=layer,
        collectives=find_collectives(trace, events),
    )


def main_thread(trace: KinetoTrace) -> int:
    """The thread that ends steps or updates parameters; else the host thread with the most events.
    Optimizers may step within backward, on a thread of autograd."""
    for prefix in (PROFILER_STEP, OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD):
        row = next(trace.named(prefix), None)
        if row is not None:
            return int(trace.thread[row])
    counts = np.bincount(trace.thread, minlength=len(trace.threads))
    counts[[thread.is_device for thread in trace.threads]] = -1
    return int(counts.argmax())
