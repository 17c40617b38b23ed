"""Reads traces of other profilers as one Trace, each format by its reader."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.progress import Progress, silent
from augury.core.trace.trace import Trace
from augury.executor import IN_THIS_PROCESS, Executor
from augury.ingest.clocks.rank_clocks import Source
from augury.ingest.formats.execution_trace import ExecutionTrace, read_execution_trace
from augury.ingest.formats.horovod_timeline import read_horovod_timeline
from augury.ingest.formats.linked_execution_trace import completed, trace_of
from augury.ingest.formats.merged_traces import event_array, rank_in, split_labelled, split_parts
from augury.ingest.formats.pipeline_table import read_pipeline_table
from augury.ingest.formats.recognition import RecognizedFile, TraceFormat, recognize
from augury.ingest.imported import StagedTraces, stage_traces
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget

_Files = dict[TraceFormat, list[Path]]


def read_foreign(
    paths: Sequence[Path], *, clocks: Source = "auto", max_bytes: int = MAX_RUN_BYTES
) -> Trace:
    """Returns the whole Trace in memory."""
    with tempfile.TemporaryDirectory(prefix="augury-import-") as folder:
        found = stage_foreign(paths, Path(folder), clocks=clocks, max_bytes=max_bytes)
        return found if isinstance(found, Trace) else found.trace()


def stage_foreign(
    paths: Sequence[Path],
    folder: Path,
    *,
    clocks: Source = "auto",
    max_bytes: int = MAX_RUN_BYTES,
    executor: Executor = IN_THIS_PROCESS,
    progress: Progress = silent,
) -> Trace | StagedTraces:
    """Unpacks and stages the traces in ``folder``; tables and Horovod timelines, which have one
    row per operation, are returned whole. A folder or an archive stands for all traces in it;
    ``max_bytes`` limits their unpacked size in total. Raises an InputError for unknown formats, for
    formats that do not belong together, and if the traces of the ranks do not match."""
    budget = ReadBudget(paths[0], max_bytes)
    found = recognize(paths, folder, budget)
    files: _Files = defaultdict(list)
    for file in found:
        files[file.format].append(file.path)
    ledger = Ledger()
    _note_skipped(found, ledger)
    _refuse_mixtures(files)
    if files[TraceFormat.TABLE] or files[TraceFormat.HOROVOD]:
        trace = (
            read_pipeline_table(files[TraceFormat.TABLE])
            if files[TraceFormat.TABLE]
            else read_horovod_timeline(files[TraceFormat.HOROVOD][0], budget)
        )
        return trace.evolve(ledger=trace.ledger.merged(ledger))
    staged = stage_traces(
        _profiler_traces(files, folder, ledger, budget),
        folder,
        clocks=clocks,
        max_bytes=max_bytes,
        executor=executor,
        progress=progress,
    )
    return replace(staged, ledger=staged.ledger.merged(ledger))


def _note_skipped(found: list[RecognizedFile], ledger: Ledger) -> None:
    unknown = [file for file in found if file.format == TraceFormat.UNKNOWN]
    ledger.note(
        "skipped-file",
        "a file in the folder or archive is no trace; it was left out",
        severity=Severity.INFO,
        count=len(unknown),
        example=f"{unknown[0].path.name}: {unknown[0].looks_like}" if unknown else "",
    )


def _refuse_mixtures(files: _Files) -> None:
    """Tables and Horovod timelines describe a whole job: nothing else belongs beside them."""
    known = {format_: own for format_, own in files.items() if format_ != TraceFormat.UNKNOWN}
    for format_ in (TraceFormat.TABLE, TraceFormat.HOROVOD):
        if format_ in known and len(known) > 1:
            other = next(one for one in known if one != format_)
            raise InputError(
                f"{known[format_][0]} is a {format_}, {known[other][0]} is a {other}: they cannot"
                " be read as one run",
                remedy="import them into two runs",
            )
    if len(known.get(TraceFormat.HOROVOD, [])) > 1:
        raise InputError(
            f"there are {len(known[TraceFormat.HOROVOD])} Horovod timelines, and only rank 0 of a"
            " job writes one",
            remedy="give one timeline",
        )


def _profiler_traces(files: _Files, folder: Path, ledger: Ledger, budget: ReadBudget) -> list[Path]:
    """Returns the traces of the profiler, one per rank: merged ones split, and completed by
    execution traces of the same rank."""
    found = list(files[TraceFormat.KINETO])
    if len(found) == 1 and not files[TraceFormat.MERGED] and not files[TraceFormat.EVENT_ARRAY]:
        found = split_labelled(found[0], folder, budget)
    for path in files[TraceFormat.EVENT_ARRAY]:
        found += split_labelled(event_array(path, folder, budget), folder, budget)
    for path in files[TraceFormat.MERGED]:
        found += split_parts(path, folder, budget)
    executions = [
        (path, read_execution_trace(path, budget)) for path in files[TraceFormat.EXECUTION_TRACE]
    ]
    if not found:
        return [trace_of(execution, path, folder) for path, execution in executions]
    for path, execution in executions:
        at = _partner(path, execution, found, alone=len(executions) == 1)
        if at is None:
            ledger.note(
                "unused-execution-trace",
                "an execution trace belongs to no trace of the profiler: the rank in its name has"
                " none",
                remedy="name both after their rank, such as rank0.json and rank0_et.json",
                example=str(path),
            )
        else:
            found[at] = completed(found[at], execution, folder, ledger, budget)
    return found


def _partner(
    path: Path, execution: ExecutionTrace, traces: list[Path], *, alone: bool
) -> int | None:
    """Returns the place of the profiler's trace of the same rank."""
    if alone and len(traces) == 1:
        return 0
    rank = execution.rank if execution.rank is not None else rank_in(path.name)
    places = [at for at, trace in enumerate(traces) if rank_in(trace.name) == rank]
    return places[0] if rank is not None and len(places) == 1 else None
