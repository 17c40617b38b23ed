"""What a recorded run's folder holds: read from the ranks' own records, which may be anything."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

from augury.core.ledger import Anomaly, Ledger, Severity

MAX_RECORD_BYTES = 16 << 20


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


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    ranks: list[RankSummary]
    ledger: list[Anomaly]


def summarize_run(folder: Path) -> RunSummary:
    ledger = Ledger()
    records = [
        record for path in sorted(folder.glob("rank-*.json")) if (record := _read(path, ledger))
    ]
    world_size = max((record.world_size for record in records), default=0)
    missing = sorted(set(range(min(world_size, 1 << 20))) - {record.rank for record in records})
    if not records:
        ledger.note(
            "no-steps",
            "no optimizer stepped in any process of the job, so nothing was recorded",
            severity=Severity.ERROR,
            remedy="record a job that trains with torch.optim",
        )
    ledger.note(
        "missing-rank",
        "a rank left no record",
        count=len(missing),
        severity=Severity.ERROR,
        remedy="look at that rank's output: it may have been killed",
        example=f"rank {missing[0]}" if missing else "",
    )
    for record in records:
        if record.trouble:
            ledger.note(
                "not-recorded",
                "a rank has no trace of a window",
                severity=Severity.ERROR,
                remedy="choose a window within the job with --steps",
                example=f"rank {record.rank}: {record.trouble}",
            )
    return RunSummary(ranks=[_of_rank(record) for record in records], ledger=list(ledger))


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
