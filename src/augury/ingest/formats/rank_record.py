"""Reader of rank records (``rank-00000.json``), which are untrusted input."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import msgspec

from augury.core.errors import InputError
from augury.core.json_depth import bounded_depth
from augury.core.ledger import Ledger, Severity
from augury.core.plan.piece_log import PieceLog
from augury.core.trace.rank_record import RankRecord
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.run_files import ReadBudget, RunLimitError

MAX_RECORD_BYTES = 256 << 20

_FILE_NAME = re.compile(r"rank-\d+(\.\d+)?\.trace\.json(\.gz)?", re.ASCII)
_RECORD_NAME = re.compile(r"rank-\d+\.json", re.ASCII)


def _check(record: RankRecord) -> None:
    """Raises a ValueError for contradictions that the types of the schema cannot express."""
    names = [window.trace for window in record.windows] + [record.trace]
    if any(isinstance(name, str) and not _FILE_NAME.fullmatch(name) for name in names):
        raise ValueError("a trace has a name that is no trace's")
    if any(window.last <= window.first for window in record.windows):
        raise ValueError("a window ends before it begins")
    if any(a > b for a, b in pairwise(record.step_end_ns)):
        raise ValueError("its steps do not end one after the other")
    if record.pieces is not None and not _are_whole(record.pieces):
        raise ValueError("the times of its pieces do not fit their number")


def _are_whole(pieces: PieceLog) -> bool:
    for step in pieces.steps:
        if step.order >= len(pieces.orders):
            return False
        number = len(pieces.orders[step.order])
        times = (step.issued_ns, step.arrived_ns, step.waited_from_ns, step.waited_until_ns)
        if any(len(each) != number for each in times):
            return False
    return True


def read_records(folder: Path, ledger: Ledger, budget: ReadBudget) -> list[RankRecord]:
    """Returns the records in order of ranks; unreadable ones are noted in the ledger. Raises an
    InputError if the records belong to two jobs."""
    read: dict[str, RankRecord] = {}
    for path in sorted(folder.glob("rank-*.json")):
        if _FILE_NAME.fullmatch(path.name):
            continue
        record = _read(path, ledger, budget)
        if record is not None:
            read[path.name] = record
    read = _only_last_start(read, ledger)
    _refuse_two_jobs(folder, list(read.values()))
    records: dict[int, RankRecord] = {}
    for name, record in read.items():
        if record.rank in records:
            ledger.note(
                "rank-twice",
                "two records have the same rank; the first is used",
                severity=Severity.ERROR,
                example=name,
            )
            continue
        records[record.rank] = record
    found = [records[rank] for rank in sorted(records)]
    inside = [record for record in found if record.rank < record.world_size]
    outside = [record.rank for record in found if record.rank >= record.world_size]
    ledger.note(
        "rank-beyond-world",
        "a rank is not below the world size; its record is left out",
        count=len(outside),
        severity=Severity.ERROR,
        example=f"rank {outside[0]}" if outside else "",
    )
    _note_gaps(inside, ledger)
    return inside


def is_rank_record(path: Path) -> bool:
    """Returns whether the file is a rank record rather than a trace with such a name."""
    if not _RECORD_NAME.fullmatch(path.name):
        return False
    return _read(path, Ledger(), ReadBudget(path.parent)) is not None


def _only_last_start(records: dict[str, RankRecord], ledger: Ledger) -> dict[str, RankRecord]:
    """A launcher that restarts all ranks after a failure may leave records of the earlier start."""
    last = max((record.start for record in records.values()), default=0)
    kept = {name: record for name, record in records.items() if record.start == last}
    ledger.note(
        "earlier-start",
        "a rank record is of an earlier start of the job; it is left out",
        count=len(records) - len(kept),
        severity=Severity.INFO,
        example=next((name for name in records if name not in kept), ""),
    )
    return kept


def _refuse_two_jobs(folder: Path, records: list[RankRecord]) -> None:
    sizes: dict[int, int] = {record.world_size: record.rank for record in reversed(records)}
    jobs = {record.job: record.rank for record in reversed(records) if record.job}
    if len(sizes) > 1:
        (one, its), (other, of) = list(sizes.items())[-2:]
        reason = f"rank {of} was one of {other}, rank {its} one of {one}"
    elif len(jobs) > 1:
        one_rank, other_rank = sorted(jobs.values())[:2]
        reason = f"ranks {one_rank} and {other_rank} have different job ids"
    else:
        return
    raise InputError(
        f"{folder} contains files of two jobs: {reason}",
        remedy="record each job into its own folder",
    )


def world_size(records: list[RankRecord]) -> int:
    return max((r.world_size for r in records), default=0)


def _read(path: Path, ledger: Ledger, budget: ReadBudget) -> RankRecord | None:
    try:
        content = read_unpacked(path, max_bytes=MAX_RECORD_BYTES, budget=budget)
        record = msgspec.json.decode(bounded_depth(content), type=RankRecord)
        _check(record)
        return record
    except RunLimitError:
        raise
    except (ValueError, RecursionError, InputError) as error:
        ledger.note(
            "unreadable-record",
            "a rank record cannot be read",
            severity=Severity.ERROR,
            example=f"{path.name}: {str(error)[:300]}",
        )
        return None


def _note_gaps(records: list[RankRecord], ledger: Ledger) -> None:
    present = {r.rank for r in records}
    size = world_size(records)
    missing = [rank for rank in range(size) if rank not in present]
    ledger.note(
        "missing-rank",
        "a rank left no record",
        count=len(missing),
        severity=Severity.ERROR,
        remedy="check that rank's output; it may have been killed",
        example=f"rank {missing[0]}" if missing else "",
    )
