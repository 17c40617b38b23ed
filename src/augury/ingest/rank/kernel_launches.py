"""Links kernels and copies on a device to the runtime calls that launched them."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.formats.kineto import COPY_CATEGORIES, RUNTIME_CATEGORIES, KinetoTrace
from augury.ingest.trace_builder import MutableEvents
from augury.ingest.vocabulary.torch import runtime_call_kind


def link_launches(events: MutableEvents, trace: KinetoTrace, ledger: Ledger) -> None:
    """Fills kind, phase, step, cause and arrival of device events, and the kinds of runtime calls.

    A device event has phase and step of its launch; the two share a correlation number."""
    launch_row: dict[int, int] = {}
    kinds: dict[str, OpKind] = {}
    for i, category in enumerate(trace.category):
        if category in RUNTIME_CATEGORIES:
            name = trace.name[i]
            if name not in kinds:
                kinds[name] = runtime_call_kind(name)
            events.kind[i] = kinds[name]
            correlation = trace.args[i].correlation
            if correlation:
                launch_row[correlation] = i
    rows = np.flatnonzero(trace.is_on_device).tolist()
    copies = [i for i in rows if trace.category[i] in COPY_CATEGORIES]
    events.kind[copies] = OpKind.COPY
    events.size_bytes[rows] = [_size_bytes(trace.args[i].size_bytes) for i in rows]
    causes = [launch_row.get(trace.args[i].correlation or 0, NONE) for i in rows]
    events.cause[rows] = causes
    pairs = [(i, cause) for i, cause in zip(rows, causes, strict=True) if cause != NONE]
    launched, launching = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    events.step[launched] = events.step[launching]
    events.phase[launched] = events.phase[launching]
    launch_ns = events.start_ns[launching]
    num_early = int((events.start_ns[launched] < launch_ns).sum())
    end_ns = np.maximum(events.end_ns[launched], launch_ns)
    events.arrival_ns[launched] = launch_ns
    events.start_ns[launched] = np.maximum(events.start_ns[launched], launch_ns)
    events.dur_ns[launched] = end_ns - events.start_ns[launched]
    ledger.note(
        "kernel-before-launch",
        "a kernel starts before its launch; its start is set to the launch",
        severity=Severity.INFO,
        count=num_early,
    )
    ledger.note(
        "kernel-without-launch",
        "a kernel was launched before the recording began",
        severity=Severity.INFO,
        count=len(rows) - len(pairs),
    )


def _size_bytes(value: float | str | None) -> int:
    """Some profilers write the number as text."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 18 else None
    return int(value) if value is not None and 0 <= value < 1 << 60 else 0
