"""Links kernels and copies on a device to the runtime calls that launched them."""

from __future__ import annotations

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.formats.kineto import COPY_CATEGORIES, RUNTIME_CATEGORIES, KinetoTrace
from augury.ingest.rank.device_clock import correct_device_clock
from augury.ingest.trace_builder import MutableEvents
from augury.ingest.vocabulary.torch import runtime_call_kind


def link_launches(events: MutableEvents, trace: KinetoTrace, ledger: Ledger) -> None:
    """Fills kind, phase, step, cause and arrival of device events, and the kinds of runtime calls.

    A device event has phase and step of its launch; the two share a correlation number."""
    calls = np.flatnonzero(trace.category.where(RUNTIME_CATEGORIES.__contains__))
    kinds = np.array([runtime_call_kind(name) for name in trace.name.strings], dtype=np.uint8)
    events.kind[calls] = kinds[trace.name.number[calls]]
    is_on_device = trace.is_on_device
    rows = np.flatnonzero(is_on_device)
    events.kind[is_on_device & trace.category.where(COPY_CATEGORIES.__contains__)] = OpKind.COPY
    events.size_bytes[rows] = trace.size_bytes[rows]
    causes = last_row_with(trace.correlation, calls[trace.correlation[calls] != 0], rows)
    events.cause[rows] = causes
    launched, launching = rows[causes != NONE], causes[causes != NONE]
    events.step[launched] = events.step[launching]
    events.phase[launched] = events.phase[launching]
    launch_ns = events.start_ns[launching]
    correct_device_clock(events, trace.is_on_device, launched, launch_ns, ledger)
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
        count=len(rows) - len(launched),
    )


def last_row_with(number: I8, rows: I8, wanted: I8) -> I8:
    """Returns, for each wanted row, the last one of ``rows`` with the same number; else NONE."""
    if not len(rows):
        return np.full(len(wanted), NONE, dtype=np.int64)
    rows = rows[np.argsort(number[rows], kind="stable")]
    known = number[rows]
    place = np.searchsorted(known, number[wanted], side="right") - 1
    is_known = (place >= 0) & (known[place] == number[wanted])
    found: I8 = np.where(is_known, rows[place], NONE)
    return found
