"""Reads traces of PyTorch's profiler, one file per rank, as one Trace.

Each rank is read for itself and its events wait in a file (``rank/staged_rank.py``). When the
collectives of all ranks are matched and the clocks aligned, the events follow rank by rank: into
memory, or into the tables of a run's folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.progress import Progress, silent
from augury.core.trace.trace import Allocations, Clock, Events, RankFacts, Trace
from augury.executor import IN_THIS_PROCESS, Executor
from augury.ingest.clocks.rank_clocks import Source, align
from augury.ingest.collectives.matching.match_ranks import match_collectives
from augury.ingest.collectives.matching.matched_collectives import ends_of
from augury.ingest.collectives.matching.missing_parts import restore_missing_parts
from augury.ingest.rank.complete_steps import choose_steps, number_steps_alike
from augury.ingest.rank.rank_file import check_staged, rank_files, stage_rank_file
from augury.ingest.rank.rank_numbers import number_ranks
from augury.ingest.rank.staged_rank import MAX_RANKS, StagedRank
from augury.ingest.rank.steps import annotated_step_table
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget
from augury.ingest.trace_builder import TraceBuilder


def import_traces(
    paths: Sequence[Path],
    *,
    clocks: Source = "auto",
    max_bytes: int = MAX_RUN_BYTES,
    executor: Executor = IN_THIS_PROCESS,
    progress: Progress = silent,
) -> Trace:
    """Returns the whole Trace in memory. A folder stands for all traces in it; ``max_bytes`` limits
    their unpacked size in total. Raises an InputError if the traces of the ranks do not match."""
    with tempfile.TemporaryDirectory(prefix="augury-import-") as folder:
        staged = stage_traces(
            paths,
            Path(folder),
            clocks=clocks,
            max_bytes=max_bytes,
            executor=executor,
            progress=progress,
        )
        return staged.trace()


@dataclass(kw_only=True)
class StagedTraces:
    """Ranks with matched collectives and aligned clocks; their events are in files."""

    ranks: dict[int, StagedRank]
    world_size: int
    clocks: dict[int, Clock]
    builder: TraceBuilder
    ledger: Ledger

    @property
    def num_events(self) -> int:
        return sum(one.num_events for one in self.ranks.values())

    def event_parts(self) -> Iterator[Events]:
        """Yields the events of one rank after the other, once."""
        first_row = 0
        for rank, one in self.ranks.items():
            yield one.finished(self.clocks[rank], self.builder, first_row)
            first_row += one.num_events

    @property
    def num_allocations(self) -> int:
        return sum(one.allocations.num_rows for one in self.ranks.values())

    def allocation_parts(self) -> Iterator[Allocations]:
        """Yields the allocations of one rank after the other, once."""
        first_row = 0
        for rank, one in self.ranks.items():
            yield one.finished_allocations(self.clocks[rank], self.builder, first_row)
            first_row += one.allocations.num_rows

    def trace(self) -> Trace:
        """Returns the whole Trace in memory, once."""
        events = Events.joined(self.event_parts())
        allocations = Allocations.joined(self.allocation_parts())
        return self.facts().evolve(events=events, allocations=allocations)

    def facts(self) -> Trace:
        """Returns the Trace without its events and allocations; its strings are complete after the
        last part."""
        return Trace(
            events=Events.empty(),
            steps=annotated_step_table(
                {rank: one.steps for rank, one in self.ranks.items()}, self.clocks
            ),
            ranks=[
                RankFacts(
                    rank=rank,
                    host=one.host,
                    framework="torch",
                    clock=self.clocks[rank],
                    device_memory_bytes=one.device_memory_bytes,
                )
                for rank, one in self.ranks.items()
            ],
            world_size=self.world_size,
            streams=self.builder.streams(),
            strings=self.builder.strings.table(),
            groups=self.builder.groups,
            ledger=self.ledger,
        )


def stage_traces(
    paths: Sequence[Path],
    folder: Path,
    *,
    clocks: Source = "auto",
    max_bytes: int = MAX_RUN_BYTES,
    executor: Executor = IN_THIS_PROCESS,
    progress: Progress = silent,
) -> StagedTraces:
    """Reads the traces rank by rank, leaves their events in ``folder``, matches and aligns them."""
    ledger, builder = Ledger(), TraceBuilder()
    budget = ReadBudget(paths[0], max_bytes)
    ranks = _ranks(_files(paths), folder, budget, executor, progress, ledger)
    for one in ranks.values():
        ledger = ledger.merged(one.file_ledger)
    ranks = dict(sorted(ranks.items()))
    sizes = {one.world_size or 0 for one in ranks.values()}
    world_size = _world_size(ranks, sizes)
    _note_gaps(ranks, sizes - {0}, world_size, ledger)
    for one in ranks.values():
        ledger = ledger.merged(one.ledger)
    matching = match_collectives(ranks, world_size, builder, ledger)
    number_steps_alike(ranks, matching.collectives, ledger)
    hosts = {rank: one.host for rank, one in ranks.items()}
    rank_clocks = align(hosts, {}, ends_of(matching.collectives), ledger, source=clocks)
    restore_missing_parts(ranks, matching, rank_clocks, ledger)
    choose_steps(ranks, matching.refused, ledger)
    return StagedTraces(
        ranks=ranks, world_size=world_size, clocks=rank_clocks, builder=builder, ledger=ledger
    )


def _world_size(ranks: dict[int, StagedRank], sizes: set[int]) -> int:
    """The largest size that a trace states or implies: by its own rank, or by those of a group."""
    members = (item.members for one in ranks.values() for item in one.collectives)
    implied = {group[-1] + 1 for group in members if group}
    return max({max(ranks) + 1, *implied, *(size for size in sizes if size <= MAX_RANKS)})


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = [*path.glob("*.json"), *path.glob("*.json.gz")] if path.is_dir() else [path]
        found += sorted(inside)
    if not found:
        raise InputError("there are no traces", remedy="give JSON files of torch's profiler")
    if len(found) > MAX_RANKS:
        raise InputError(
            f"{len(found)} traces; the limit is {MAX_RANKS}", remedy="give fewer traces"
        )
    return found


def _ranks(
    files: list[Path],
    folder: Path,
    budget: ReadBudget,
    executor: Executor,
    progress: Progress,
    ledger: Ledger,
) -> dict[int, StagedRank]:
    """Ranks in order of their files."""
    asked = rank_files(files, folder, budget)
    staged = [*executor.run(stage_rank_file, asked, work="reading traces", progress=progress)]
    for item, one in zip(asked, staged, strict=True):
        check_staged(item)
        budget.take(one.unpacked_bytes)
    number_ranks(files, staged, ledger)
    return {one.rank: one for one in staged}


def _note_gaps(
    ranks: dict[int, StagedRank], sizes: set[int], world_size: int, ledger: Ledger
) -> None:
    if len(sizes) > 1:
        ledger.note(
            "mismatched-world-size",
            "ranks state different world sizes; the largest is used",
            severity=Severity.ERROR,
            remedy="import traces of one job",
            example=", ".join(map(str, sorted(sizes)[:5])),
        )
    missing = [rank for rank in range(world_size) if rank not in ranks]
    ledger.note(
        "missing-rank",
        "a rank has no trace",
        count=len(missing),
        remedy="import the traces of all ranks",
        example=f"rank {missing[0]}" if missing else "",
    )
