"""What a device ran, and who asked for it: kernels and copies find their launch by correlation."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.trace_builder import Draft

_RUNTIME = ("cuda_runtime", "cuda_driver")
_COPIES = ("gpu_memcpy", "gpu_memset")
_LAUNCHES = ("launch", "memcpy", "memset")


def draft_device(draft: Draft, trace: KinetoTrace, ledger: Ledger) -> None:
    """Fills kind, phase, step, cause and arrival of what devices ran, and kinds of calls."""
    caller: dict[int, int] = {}
    kinds: dict[str, OpKind] = {}
    for i, category in enumerate(trace.category):
        if category in _RUNTIME:
            name = trace.name[i]
            if name not in kinds:
                kinds[name] = _runtime_kind(name)
            draft.kind[i] = kinds[name]
            correlation = trace.args[i].correlation
            if correlation:
                caller[correlation] = i
    rows = _device_rows(trace)
    copies = [i for i in rows if trace.category[i] in _COPIES]
    draft.kind[copies] = OpKind.COPY
    draft.size_bytes[rows] = [_size(trace.args[i].size_bytes) for i in rows]
    causes = [caller.get(trace.args[i].correlation or 0, NONE) for i in rows]
    draft.cause[rows] = causes
    pairs = [(i, cause) for i, cause in zip(rows, causes, strict=True) if cause != NONE]
    ran, asked = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    draft.step[ran] = draft.step[asked]
    draft.phase[ran] = draft.phase[asked]
    launch = draft.start_ns[asked]
    early = int((draft.start_ns[ran] < launch).sum())
    end = np.maximum(draft.end_ns[ran], launch)
    draft.arrival_ns[ran] = launch
    draft.start_ns[ran] = np.maximum(draft.start_ns[ran], launch)
    draft.dur_ns[ran] = end - draft.start_ns[ran]
    ledger.note(
        "kernel-before-launch",
        "a kernel seems to start before it was launched: taken as starting with its launch",
        severity=Severity.INFO,
        count=early,
    )
    ledger.note(
        "kernel-without-launch",
        "a kernel's launch lies before the recording",
        severity=Severity.INFO,
        count=len(rows) - len(pairs),
    )


def _device_rows(trace: KinetoTrace) -> list[int]:
    is_device = np.array([thread.is_device for thread in trace.threads], dtype=bool)
    return np.flatnonzero(is_device[trace.thread]).tolist() if len(trace) else []


def _size(said: float | str | None) -> int:
    """Some profilers write it as text."""
    if isinstance(said, str):
        said = int(said) if said.isascii() and said.isdigit() and len(said) < 18 else None
    return int(said) if said is not None and 0 <= said < 1 << 60 else 0


def _runtime_kind(name: str) -> OpKind:
    plain = name.lower()
    if "synchronize" in plain or "waitevent" in plain:
        return OpKind.SYNC
    return OpKind.LAUNCH if any(word in plain for word in _LAUNCHES) else OpKind.OTHER
