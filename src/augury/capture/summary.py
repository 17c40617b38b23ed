"""What a recorded run's folder holds: read from the ranks' own records, which may be anything."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

from augury.core.ledger import Anomaly, Ledger, Severity

MAX_RECORD_BYTES = 16 << 20


class RankRecord(msgspec.Struct, frozen=True):
    rank: int
    world_size: int
    host: str
    window: tuple[int, int]
    step_end_ns: list[int]
    trace: str | None = None
    trouble: str | None = None


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    host: str
    num_steps: int
    trace: str | None
    recorded_step_ns: int | None
    """Median of the steps in the window; the first, in which the profiler starts, left out."""
    plain_step_ns: int | None
    """Median of the steps outside it."""


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
                "a rank has no trace of the window",
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
    first, last = record.window
    durations = [(i, ends[i] - ends[i - 1]) for i in range(1, len(ends))]
    inside = [ns for i, ns in durations if first < i < last]
    # The step after the window writes the trace; the first ones warm up.
    outside = [ns for i, ns in durations if first // 2 <= i < first or i > last]
    return RankSummary(
        rank=record.rank,
        host=record.host,
        num_steps=len(ends),
        trace=record.trace,
        recorded_step_ns=round(median(inside)) if inside and record.trace else None,
        plain_step_ns=round(median(outside)) if outside else None,
    )
