"""Summary of a recorded run's folder, read from rank records, which are untrusted input."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from augury.capture.launcher.wire_summary import summarize_wire
from augury.capture.process_identity import rank_name
from augury.capture.rendezvous.file_transfer import GATHERED
from augury.core.enums import StepState
from augury.core.errors import InputError
from augury.core.files import DISK_IS_FULL, open_regular
from augury.core.json_depth import bounded_depth
from augury.core.ledger import Ledger, Severity
from augury.core.plan.plan_status import PlanStatus
from augury.core.results.recorded_run import (
    ModuleTimesSummary,
    RankSummary,
    RunPlace,
    RunSummary,
    WatchSummary,
)
from augury.core.results.watch import WATCH_FILE
from augury.core.trace.module_timing import AS_RECORDED, COMPILED
from augury.core.trace.rank_record import RankHeader

MAX_RECORD_BYTES = 16 << 20
MAX_PLACE_BYTES = 1 << 16
MAX_WATCH_BYTES = 256 << 20
MIN_FREE_BYTES = 1 << 16
"""With less free space no record can be written."""


def summarize_run(
    folder: Path,
    *,
    rank: int | None = None,
    wire: bool = False,
    watch: bool = False,
    exit_code: int = 0,
) -> RunSummary:
    """Summarizes all ranks that left records, or only the given one; ``wire`` says whether TCP
    traffic was to be recorded too, ``watch`` whether the job was to be watched. ``exit_code`` is
    the job's own."""
    ledger = Ledger()
    pattern = "rank-*.json" if rank is None else f"{rank_name(rank)}.json"
    paths = sorted(folder.glob(pattern))
    records = [record for path in paths if (record := _read(path, ledger))]
    gathered = _gathered(folder)
    if rank is None and gathered is None:
        _note_missing_ranks(records, ledger)
    wire_summary = None
    if wire:
        connected = [record.rank for record in records if record.world_size > 1]
        wire_summary = summarize_wire(folder, ledger, rank=rank, expected=connected)
    has_no_space = _has_no_space(folder)
    is_full = any(map(_ran_out_of_space, records)) or (has_no_space and not records)
    if is_full or has_no_space:
        ledger.note(
            "disk-full",
            "no space is left on the disk of the run: missing files were not written",
            severity=Severity.ERROR if is_full else Severity.WARNING,
            remedy="free some space, or give another --out",
            example=str(folder),
        )
    if not records and not is_full and wire_summary is not None and wire_summary.num_processes:
        ledger.note(
            "only-wire",
            "no torch optimizer stepped in any process of the job: only TCP traffic was recorded",
            severity=Severity.INFO,
        )
    elif not folder.is_dir():
        ledger.note(
            "folder-gone",
            "the folder of the run is gone, and the recording with it",
            severity=Severity.ERROR,
            remedy="check that the job does not remove or rename it, or give another --out",
            example=str(folder),
        )
    elif not records and not is_full:
        ledger.note(
            "no-steps",
            "the job ended before the first rank record was written, so nothing was recorded"
            if any(folder.glob("rank-*.trace.json.gz"))
            else "no optimizer stepped in any process of the job, so nothing was recorded",
            severity=Severity.ERROR,
            remedy=f"look at the job's own output: it ended with exit code {exit_code}"
            if exit_code
            else "record a job that trains with torch.optim",
        )
    for record in records:
        if record.trouble:
            ledger.note(
                "not-recorded",
                "a rank has no trace of a window",
                severity=Severity.ERROR,
                remedy="" if is_full or has_no_space else _remedy(record),
                example=f"rank {record.rank}: {record.trouble}",
            )
        elif not record.windows:
            ledger.note(
                "not-profiled",
                "a rank was excluded from profiling (--ranks): only its step times are known",
                severity=Severity.INFO,
                example=f"rank {record.rank}",
            )
    _note_drift(records, ledger)
    return RunSummary(
        ranks=[_summarize_rank(record) for record in records],
        ledger=list(ledger),
        gathered=gathered,
        wire=wire_summary,
        watch=_summarize_watch(folder) if watch and not rank and gathered is None else None,
        module_times=next((times for one in records if (times := _module_times(one))), None),
    )


def _remedy(record: RankHeader) -> str:
    plan = record.plan
    if isinstance(plan, PlanStatus) and (
        plan.is_on_trial or (plan.has_trial and not plan.is_followed and plan.reason is None)
    ):
        return "train for more steps, or follow the plan without a trial: --no-trial"
    return "choose a window within the job with --steps"


def _module_times(record: RankHeader) -> ModuleTimesSummary | None:
    timings = [one for one in record.module_timings if one.forward_ns or one.trouble]
    if not timings:
        return None
    timed = [one for one in timings if one.variant == AS_RECORDED and one.forward_ns]
    first_module = {one.trouble: one.modules[0] for one in reversed(timings) if one.trouble}
    return ModuleTimesSummary(
        num_modules=sum(len(one.modules) for one in timed),
        num_groups=len(timed),
        num_compiled=sum(one.variant == COMPILED and bool(one.forward_ns) for one in timings),
        troubles=[f"{module}: {trouble}" for trouble, module in reversed(first_module.items())],
    )


def _summarize_watch(folder: Path) -> WatchSummary:
    """Lines that cannot be read do not count."""
    lines: list[bytes] = []
    with suppress(OSError, ValueError, InputError):
        lines = _content(folder / WATCH_FILE, MAX_WATCH_BYTES).splitlines()
    is_change = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            is_change.append(msgspec.json.decode(line, type=_WatchedChange).changed)
    return WatchSummary(file=WATCH_FILE, num_windows=len(is_change), num_changes=sum(is_change))


class _WatchedChange(msgspec.Struct):
    """The one field of a line of the watch that the summary needs."""

    changed: bool


def _note_missing_ranks(records: list[RankHeader], ledger: Ledger) -> None:
    sizes = {record.world_size: record.rank for record in records}
    world_size = max(sizes, default=0)
    missing = sorted(set(range(min(world_size, 1 << 20))) - {record.rank for record in records})
    ledger.note(
        "missing-rank",
        "a rank left no record",
        count=len(missing),
        severity=Severity.ERROR,
        remedy="look at that rank's output: it may have been killed",
        example=f"rank {missing[0]}" if missing else "",
    )
    ledger.note(
        "world-sizes-differ",
        "ranks disagree on the world size",
        count=len(sizes) - 1,
        severity=Severity.ERROR,
        remedy="give every job a folder of its own",
        example=", ".join(f"rank {rank} says {size}" for size, rank in sorted(sizes.items())[:3]),
    )
    jobs = {record.job: record.rank for record in reversed(records) if record.job}
    ledger.note(
        "two-jobs",
        "the folder holds files of two jobs",
        count=len(jobs) - 1,
        severity=Severity.ERROR,
        remedy="give every job a folder of its own",
        example=f"ranks {' and '.join(map(str, sorted(jobs.values())[:2]))} never connected",
    )


def _ran_out_of_space(record: RankHeader) -> bool:
    return any(os.strerror(number) in (record.trouble or "") for number in DISK_IS_FULL)


def _has_no_space(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < MIN_FREE_BYTES
    except OSError:
        return False


def _gathered(folder: Path) -> RunPlace | None:
    path = folder / GATHERED
    try:
        return msgspec.json.decode(_content(path, MAX_PLACE_BYTES), type=RunPlace)
    except (OSError, ValueError, RecursionError, InputError):
        return None


def _content(path: Path, max_bytes: int) -> bytes:
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError("the file is too large")
    return bounded_depth(content)


def _read(path: Path, ledger: Ledger) -> RankHeader | None:
    try:
        return msgspec.json.decode(_content(path, MAX_RECORD_BYTES), type=RankHeader)
    except (OSError, ValueError, RecursionError, InputError) as error:
        ledger.note(
            "unreadable-record",
            "a rank record cannot be read",
            severity=Severity.ERROR,
            example=f"{path.name}: {error}",
        )
        return None


def _summarize_rank(record: RankHeader) -> RankSummary:
    from augury.capture.launcher.step_times import typical_ns

    return RankSummary(
        rank=record.rank,
        host=record.host,
        num_steps=len(record.step_end_ns),
        traces=[w.trace for w in record.windows if w.trace],
        recorded_step_ns=typical_ns(record, StepState.TIMED),
        plain_step_ns=typical_ns(record, StepState.PLAIN),
    )


def _note_drift(records: list[RankHeader], ledger: Ledger) -> None:
    from augury.capture.launcher.step_times import representation_of
    from augury.costs.prediction_interval import note_unrepresentative

    profiled = [record for record in records if record.windows]
    run = representation_of(profiled) if profiled else None
    if run is not None:
        note_unrepresentative(run, ledger)
