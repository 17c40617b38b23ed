"""Creates the folder of a run, and removes files that an earlier run left there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from augury.capture.process_identity import is_restarted, num_restarts, own_rank, rank_name
from augury.core.errors import UsageError
from augury.core.results.watch import WATCH_FILE

_LEFT_BY_RECORDERS = (
    "rank-*.json",
    "rank-*.trace.json.gz",
    "rank-*.partial",
    "gathered.json",
    ".gathered.json.*",
    ".modules*.pickle*",
    "run.json",
    "events.parquet",
    "*.columns",
)
_LEFT_BY_RUNS = (
    *_LEFT_BY_RECORDERS,
    WATCH_FILE,  # not at a restart: alerts of earlier starts of the job are kept
    "rank-*.wire-*",
    "process.wire-*",
    ".rank-*",
    ".process.wire-*",
    ".seen-*",
)
_CLEANED = "AUGURY_CLEANED_AT_RESTART"

_RANK = re.compile(r"\.?rank-([0-9]{1,9})\.")


def prepare_folder(out: Path, *, force: bool, rank: int | None = None) -> Path:
    """Creates the folder if necessary; refuses to overwrite unless ``force``. ``rank`` is given
    where every rank calls this itself: then only rank 0 checks the whole folder, because the other
    ranks may find its files there."""
    try:
        if out.exists() and not out.is_dir():
            raise UsageError(f"{out} is not a folder", remedy="give another --out")
        out.mkdir(parents=True, exist_ok=True)
        if force or is_restarted():
            _remove(out, rank)
        elif _is_taken(out, rank):
            raise UsageError(
                f"{out} exists and is not empty",
                remedy="give another --out, or --force to replace a run that is there",
            )
    except OSError as error:
        raise UsageError(
            f"cannot write to {out}: {error.strerror}", remedy="give another --out"
        ) from error
    return out.resolve()


def remove_earlier_start(out: Path) -> None:
    """Removes the files that this rank left before its restart. The wire recorder, which is
    already running, removes its own files. Child processes remove nothing."""
    if "RANK" not in os.environ or os.environ.get(_CLEANED, "0") == str(num_restarts()):
        return
    os.environ[_CLEANED] = str(num_restarts())
    _remove(out, own_rank()[0], patterns=_LEFT_BY_RECORDERS)


def _is_taken(out: Path, rank: int | None) -> bool:
    return any(out.glob(f"{rank_name(rank)}*") if rank else out.iterdir())


def _remove(out: Path, rank: int | None, *, patterns: tuple[str, ...] = _LEFT_BY_RUNS) -> None:
    """Removes files of runs, and no others. Where every rank calls this itself, each removes its
    own files and rank 0 those of no rank: files of other ranks may already be new."""
    _, world_size = own_rank()
    for path in (path for pattern in patterns for path in out.glob(pattern)):
        owner = _RANK.match(path.name)
        is_mine = rank is None or (
            (rank == 0 and (owner is None or int(owner[1]) >= world_size))
            or (owner is not None and int(owner[1]) == rank)
        )
        if is_mine and (path.is_file() or path.is_symlink()):
            path.unlink(missing_ok=True)
