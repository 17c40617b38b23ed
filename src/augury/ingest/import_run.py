"""Imports traces of other profilers into a run's folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from augury.core.errors import UsageError
from augury.core.results.imported_run import ImportResult, RankClock
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import RUN_FILE, write_trace
from augury.core.units import parse_bytes
from augury.ingest.formats.rank_record import is_rank_record
from augury.ingest.imported import import_traces
from augury.ingest.run_files import MAX_RUN_BYTES

RANK_RECORDS = "rank-*.json"


def import_run(
    traces: Sequence[Path],
    out: Path,
    *,
    clocks: str = "auto",
    max_bytes: int | str | None = None,
    force: bool = False,
) -> ImportResult:
    """Reads the traces of all ranks and writes them to ``out`` as one run. ``clocks`` is ``auto``
    or ``collectives``: the source of clock offsets. ``max_bytes`` limits the unpacked size."""
    _refuse_runs(traces)
    if clocks not in ("auto", "collectives"):
        raise UsageError(
            f"{clocks!r} is not a source of clock offsets", remedy="choose auto or collectives"
        )
    _check_target(out, force=force)
    if max_bytes is None:
        max_bytes = MAX_RUN_BYTES
    trace = import_traces(
        traces,
        clocks="auto" if clocks == "auto" else "collectives",
        max_bytes=parse_bytes(max_bytes) if isinstance(max_bytes, str) else max_bytes,
    )
    out.mkdir(parents=True, exist_ok=True)
    write_trace(trace, out)
    return summarize_import(trace)


def summarize_import(trace: Trace) -> ImportResult:
    events = trace.events
    communicates = events.group >= 0
    matched = communicates & (events.sequence >= 0)
    collectives = np.stack([events.group[matched], events.sequence[matched]], axis=1)
    return ImportResult(
        num_ranks=len(trace.ranks),
        world_size=trace.world_size,
        num_events=len(events),
        num_steps=len(np.unique(trace.steps.step)),
        num_matched=len(np.unique(collectives, axis=0)),
        num_unmatched=int((communicates & ~matched).sum()),
        clocks=[RankClock(rank=facts.rank, clock=facts.clock) for facts in trace.ranks],
        ledger=list(trace.ledger),
    )


def _refuse_runs(traces: Sequence[Path]) -> None:
    for path in traces:
        files = sorted(path.glob(RANK_RECORDS)) if path.is_dir() else [path]
        if any(map(is_rank_record, files)) or (path / RUN_FILE).is_file():
            run = path if path.is_dir() else path.parent
            raise UsageError(
                f"{path} was written by Augury: it needs no import",
                remedy=f"use it as it is: augury replay {shlex.quote(str(run))}",
            )


def _check_target(out: Path, *, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder", remedy="give another --out")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(f"{out} exists and is not empty", remedy="add --force to replace it")
    if any(out.glob(RANK_RECORDS)):
        # Opening the folder would read those records instead of the imported run.
        raise UsageError(f"{out} holds a run of `augury run`", remedy="give another --out")
