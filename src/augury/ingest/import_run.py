"""Imports traces of other profilers into a run's folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from augury.core.errors import UsageError
from augury.core.progress import Progress, silent
from augury.core.results.imported_run import ImportResult, RankClock
from augury.core.trace.trace import Events, Trace
from augury.core.trace.trace_file import (
    RUN_FILE,
    TableParts,
    write_trace,
    write_trace_in_parts,
)
from augury.core.units import parse_bytes
from augury.executor import IN_THIS_PROCESS, Executor
from augury.ingest.clocks.rank_clocks import Source
from augury.ingest.foreign_traces import stage_foreign
from augury.ingest.formats.rank_record import is_rank_record
from augury.ingest.run_files import MAX_RUN_BYTES

RANK_RECORDS = "rank-*.json"


def import_run(
    traces: Sequence[Path],
    out: Path,
    *,
    clocks: str = "auto",
    max_bytes: int | str | None = None,
    force: bool = False,
    executor: Executor = IN_THIS_PROCESS,
    progress: Progress = silent,
) -> ImportResult:
    """Reads the traces of all ranks, whose formats are recognized by their content, and writes
    them to ``out`` as one run. ``clocks`` is ``auto`` or ``collectives``: the source of clock
    offsets. ``max_bytes`` limits the unpacked size."""
    _refuse_runs(traces)
    if clocks not in ("auto", "collectives"):
        raise UsageError(
            f"{clocks!r} is not a source of clock offsets", remedy="choose auto or collectives"
        )
    _check_target(out, force=force)
    if max_bytes is None:
        max_bytes = MAX_RUN_BYTES
    source: Source = "auto" if clocks == "auto" else "collectives"
    limit = parse_bytes(max_bytes) if isinstance(max_bytes, str) else max_bytes
    counts = _Counts()
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix=".staged-", dir=out) as folder:
            found = stage_foreign(
                traces,
                Path(folder),
                clocks=source,
                max_bytes=limit,
                executor=executor,
                progress=progress,
            )
            if isinstance(found, Trace):
                write_trace(found, out)
                counts.add(found.events)
                return counts.result(found)
            tables = {
                "events": TableParts(map(counts.add, found.event_parts()), found.num_events),
                "allocations": TableParts(found.allocation_parts(), found.num_allocations),
            }
            write_trace_in_parts(tables, found.facts, out)
            return counts.result(found.facts())
    except BaseException:
        if is_new:
            with suppress(OSError):  # it may hold files by now
                out.rmdir()
        raise


class _Counts:
    """Numbers of events and of matched and unmatched collectives, counted part by part."""

    def __init__(self) -> None:
        self._num_events = 0
        self._num_unmatched = 0
        self._matched: set[tuple[int, int]] = set()

    def add(self, events: Events) -> Events:
        communicates = events.group >= 0
        matched = communicates & (events.sequence >= 0)
        self._num_events += len(events)
        self._num_unmatched += int((communicates & ~matched).sum())
        pairs = zip(events.group[matched].tolist(), events.sequence[matched].tolist(), strict=True)
        self._matched.update(pairs)
        return events

    def result(self, facts: Trace) -> ImportResult:
        return ImportResult(
            num_ranks=len(facts.ranks),
            world_size=facts.world_size,
            num_events=self._num_events,
            num_steps=len(np.unique(facts.steps.step)),
            num_matched=len(self._matched),
            num_unmatched=self._num_unmatched,
            clocks=[RankClock(rank=each.rank, clock=each.clock) for each in facts.ranks],
            ledger=list(facts.ledger),
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
