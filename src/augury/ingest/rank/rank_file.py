"""One rank's trace to be staged, as a worker of any engine gets it."""

from __future__ import annotations

import socket
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from augury.core.errors import AuguryError
from augury.ingest.formats.shown_path import ShownPath
from augury.ingest.rank.staged_rank import StagedRank, stage_rank
from augury.ingest.run_files import ReadBudget


@dataclass(frozen=True, kw_only=True)
class RankFile:
    """A trace, and the file that its events go to. Both paths are absolute: workers have working
    folders of their own. ``budget`` is that of all traces together."""

    source: ShownPath
    staged: Path
    budget: ReadBudget

    def __str__(self) -> str:
        return str(self.source)


def rank_files(paths: list[Path], folder: Path, budget: ReadBudget) -> list[RankFile]:
    """Returns one item for each trace; their events go to files of ``folder``."""
    return [
        RankFile(
            source=ShownPath.of(path),
            staged=folder.absolute() / f"{number}.staged",
            budget=copy(budget),
        )
        for number, path in enumerate(paths)
    ]


def stage_rank_file(asked: RankFile) -> StagedRank:
    """Stages the rank in this process. Only facts and collectives are returned: events stay in
    the file. Raises an error if this machine does not see the folder or the trace."""
    for needed in (asked.staged.parent, asked.source):
        if not needed.exists():
            raise not_shared(needed, f"the worker on {socket.gethostname()} does not see")
    return stage_rank(asked.source, asked.staged, budget=copy(asked.budget))


def check_staged(asked: RankFile) -> None:
    """Raises an error if a worker left its file where this machine does not see it."""
    if not asked.staged.is_file():
        raise not_shared(asked.staged, "this machine does not see what a worker wrote to")


def not_shared(path: Path, what: str) -> AuguryError:
    return AuguryError(
        f"{what} {path}",
        remedy="with --engine ray or dask, keep the traces and -o in a folder that all machines of"
        " the cluster share under the same path",
    )
