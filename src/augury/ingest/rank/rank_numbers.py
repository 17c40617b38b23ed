"""Numbers the ranks of imported traces: as traces state, else by names of files, else in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from augury.core.errors import InputError
from augury.core.ledger import Ledger
from augury.ingest.rank.staged_rank import MAX_RANKS, StagedRank

_RANK_IN_NAME = re.compile(r"rank[-_ ]?0*(\d{1,5})", re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]{1,18})")


def number_ranks(paths: Sequence[Path], staged: Sequence[StagedRank], ledger: Ledger) -> None:
    """Sets the rank of each trace. Raises an InputError if a rank is unknown or given twice."""
    named = [_rank_in(path.name) for path in paths]
    found = [
        name if one.stated_rank is None else one.stated_rank
        for one, name in zip(staged, named, strict=True)
    ]
    if not _are_distinct(found):
        if _are_distinct(named):
            found = named
            ledger.note(
                "contradictory-rank",
                "traces state the same rank: their ranks are those of their file names",
                example=str(paths[0]),
            )
        elif found == [None] * len(found):
            found = _numbered(paths, staged, ledger)
    ranks: set[int] = set()
    for path, one, rank in zip(paths, staged, found, strict=True):
        if rank is None or not 0 <= rank < MAX_RANKS:
            raise InputError(
                f"the rank of {path} is unknown", remedy="name the files rank0.json, rank1.json"
            )
        if rank in ranks:
            raise InputError(
                f"{path} is a second trace of rank {rank}", remedy="give one trace per rank"
            )
        ranks.add(rank)
        one.rank = rank


def _numbered(
    paths: Sequence[Path], staged: Sequence[StagedRank], ledger: Ledger
) -> list[int | None]:
    """Returns the ranks in the names of folders; else numbers in order, if the traces can be those
    of one job."""
    in_folders = [_rank_in(str(path).rpartition("/")[0].rpartition("/")[2]) for path in paths]
    if _are_distinct(in_folders):
        return in_folders
    if len(staged) > 1 and not _is_one_job(staged):
        return [None] * len(staged)
    ledger.note(
        "assumed-rank",
        "no trace states its rank: ranks are numbered in the order of their files",
        count=len(staged) if len(staged) > 1 else 0,
        remedy="name the files rank0.json, rank1.json",
        example=str(paths[0]),
    )
    found: list[int | None] = [None] * len(staged)
    for rank, at in enumerate(sorted(range(len(paths)), key=lambda at: _natural(paths[at]))):
        found[at] = rank
    return found


def _is_one_job(staged: Sequence[StagedRank]) -> bool:
    """Whether all traces have collectives and were recorded at the same time. Traces of one process
    follow each other."""
    if not all(one.collectives for one in staged):
        return False
    first = max(min(item.start_ns for item in one.collectives) for one in staged)
    last = min(max(item.end_ns for item in one.collectives) for one in staged)
    return first < last


def _natural(path: Path) -> list[tuple[int, str]]:
    """Orders worker2 before worker10."""
    parts = _NUMBER.split(str(path))
    return [(int(part), "") if _NUMBER.fullmatch(part) else (-1, part) for part in parts]


def _rank_in(name: str) -> int | None:
    found = _RANK_IN_NAME.search(name)
    return int(found[1]) if found else None


def _are_distinct(ranks: Sequence[int | None]) -> bool:
    return None not in ranks and len({*ranks}) == len(ranks)
