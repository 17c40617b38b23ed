"""What a recorded run's folder holds: read from the ranks' own records, which may be anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import median

import msgspec

from augury.capture.parcel import GATHERED
from augury.capture.rank_record import rank_name
from augury.capture.wire_summary import WireSummary, summarize_wire
from augury.core.ledger import Anomaly, Ledger, Severity

MAX_RECORD_BYTES = 16 << 20
MAX_PLACE_BYTES = 1 << 16
MIN_FREE_BYTES = 1 << 16
"""With less than this no record of any length can be written."""


class WindowRecord(msgspec.Struct, frozen=True):
    first: int
    last: int
    mode: str
    trace: str | None = None


class RankRecord(msgspec.Struct, frozen=True):
    rank: int
    world_size: int
    host: str
    step_end_ns: list[int]
    windows: list[WindowRecord] = []
    resumed: list[tuple[int, int]] = []
    trouble: str | None = None


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    host: str
    num_steps: int
    traces: list[str]
    recorded_step_ns: int | None
    """Median of the steps in windows for timing; the first of each waits for other ranks."""
    plain_step_ns: int | None
    """Median of the steps outside windows."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    folder: str


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    ranks: list[RankSummary]
    ledger: list[Anomaly]
    gathered: Place | None = None
    """Where rank 0 keeps the whole run, if this is only another host's part of it."""
    wire: WireSummary | None = None
    """None if that was not to be recorded."""


def summarize_run(folder: Path, *, rank: int | None = None, wire: bool = False) -> RunSummary:
    """Of all ranks whose records are there, or only of the one given; ``wire`` says whether what
    went over the wire should be there too."""
    ledger = Ledger()
    pattern = "rank-*.json" if rank is None else f"{rank_name(rank)}.json"
    paths = sorted(folder.glob(pattern))
    records = [record for path in paths if (record := _read(path, ledger))]
    gathered = _gathered(folder)
    if rank is None and gathered is None:
        _note_missing_ranks(records, ledger)
    of_wire = None
    if wire:
        talking = [record.rank for record in records if record.world_size > 1]
        of_wire = summarize_wire(folder, ledger, rank=rank, expected=talking)
    is_full = _is_full(folder)
    if is_full:
        ledger.note(
            "disk-full",
            "there is no space left where the record goes: what is missing was not written",
            severity=Severity.ERROR,
            remedy="make space, or give another --out",
            example=str(folder),
        )
    elif not records and of_wire is not None and of_wire.num_processes:
        ledger.note(
            "only-wire",
            "no optimizer of torch stepped in any process of the job: only the wire was recorded",
            severity=Severity.INFO,
        )
    elif not records:
        ledger.note(
            "no-steps",
            "no optimizer stepped in any process of the job, so nothing was recorded",
            severity=Severity.ERROR,
            remedy="record a job that trains with torch.optim",
        )
    for record in records:
        if record.trouble:
            ledger.note(
                "not-recorded",
                "a rank has no trace of a window",
                severity=Severity.ERROR,
                remedy="" if is_full else "choose a window within the job with --steps",
                example=f"rank {record.rank}: {record.trouble}",
            )
        elif not record.windows:
            ledger.note(
                "not-profiled",
                "a rank was not to be profiled (--ranks): only its steps are known",
                severity=Severity.INFO,
                example=f"rank {record.rank}",
            )
    return RunSummary(
        ranks=[_of_rank(record) for record in records],
        ledger=list(ledger),
        gathered=gathered,
        wire=of_wire,
    )


def _note_missing_ranks(records: list[RankRecord], ledger: Ledger) -> None:
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
        "ranks disagree on how many there are",
        count=len(sizes) - 1,
        severity=Severity.ERROR,
        remedy="give every job a folder of its own",
        example=", ".join(f"rank {rank} says {size}" for size, rank in sorted(sizes.items())[:3]),
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < MIN_FREE_BYTES
    except OSError:
        return False


def _gathered(folder: Path) -> Place | None:
    path = folder / GATHERED
    try:
        if path.stat().st_size <= MAX_PLACE_BYTES:
            return msgspec.json.decode(path.read_bytes(), type=Place)
    except (OSError, ValueError):
        pass
    return None


def _read(path: Path, ledger: Ledger) -> RankRecord | None:
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise ValueError("it is too large")
        return msgspec.json.decode(path.read_bytes(), type=RankRecord)
    except (OSError, ValueError) as error:
        ledger.note(
            "unreadable-record",
            "a rank's record cannot be read",
            severity=Severity.ERROR,
            example=f"{path.name}: {error}",
        )
        return None


def _of_rank(record: RankRecord) -> RankSummary:
    ends = record.step_end_ns
    windows = record.windows
    resumed = dict(record.resumed)
    durations = [
        (step, ends[step - 1] - max(ends[step - 2], resumed.get(step - 1, 0)))
        for step in range(2, len(ends) + 1)
    ]
    inside = [
        ns
        for step, ns in durations
        if any(w.trace and w.mode == "light" and w.first + 1 < step <= w.last for w in windows)
    ]
    # The first steps warm up; the one after a window waits for ranks that write longer.
    warm = min((w.first for w in windows), default=0) // 2
    outside = [
        ns
        for step, ns in durations
        if step > warm and not any(w.first < step <= w.last + 1 for w in windows)
    ]
    return RankSummary(
        rank=record.rank,
        host=record.host,
        num_steps=len(ends),
        traces=[w.trace for w in windows if w.trace],
        recorded_step_ns=round(median(inside)) if inside else None,
        plain_step_ns=round(median(outside)) if outside else None,
    )
