"""Reads traces of other profilers, one file per rank, as one Trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import RankFacts, Trace
from augury.ingest.clocks.rank_clocks import Source, align
from augury.ingest.collectives.sequence_alignment import align_collectives
from augury.ingest.formats.kineto import KinetoTrace, read_kineto
from augury.ingest.formats.pipeline_table import SUFFIX, read_pipeline_table
from augury.ingest.rank.kineto_rank import KinetoRank, main_thread, read_kineto_rank
from augury.ingest.rank.steps import (
    AnnotatedStep,
    annotated_step_at,
    annotated_step_table,
    annotated_steps,
)
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget
from augury.ingest.trace_builder import TraceBuilder

MAX_RANKS = 1 << 14
_RANK_IN_NAME = re.compile(r"rank[-_ ]?0*(\d{1,5})", re.IGNORECASE)


def import_traces(
    paths: Sequence[Path], *, clocks: Source = "auto", max_bytes: int = MAX_RUN_BYTES
) -> Trace:
    """A folder stands for all traces in it; ``max_bytes`` limits their unpacked size in total.
    Raises an InputError if the traces of the ranks do not match."""
    tables = [*paths, *(p for path in paths if path.is_dir() for p in path.glob(f"*{SUFFIX}"))]
    tables = [path for path in tables if path.name.endswith(SUFFIX) and path.is_file()]
    if len(tables) == 1:
        return read_pipeline_table(tables[0])
    ledger, builder = Ledger(), TraceBuilder()
    traces = _traces_by_rank(_files(paths), ledger, ReadBudget(paths[0], max_bytes))
    sizes = [trace.distributed.world_size or 0 for trace in traces.values()]
    world_size = max([max(traces) + 1, *(size for size in sizes if size <= MAX_RANKS)])
    _note_gaps(traces, {size for size in sizes if size}, world_size, ledger)
    ranks: dict[int, KinetoRank] = {}
    steps: dict[int, list[AnnotatedStep]] = {}
    for rank, trace in sorted(traces.items()):
        steps[rank] = annotated_steps(trace, main_thread(trace))
        ranks[rank] = _read_rank(rank, trace, steps[rank], builder, ledger)
    align_collectives(ranks, world_size, builder, ledger)
    rank_clocks = align(
        {rank: one.trace.host for rank, one in ranks.items()},
        {},
        {rank: _ends_ns(one) for rank, one in ranks.items()},
        ledger,
        source=clocks,
    )
    for rank, one in ranks.items():
        one.events.move_to(rank_clocks[rank])
        builder.add(rank, one.events)
    return Trace(
        events=builder.events(),
        steps=annotated_step_table(steps, rank_clocks),
        ranks=[
            RankFacts(rank=rank, host=one.trace.host, framework="torch", clock=rank_clocks[rank])
            for rank, one in ranks.items()
        ],
        world_size=world_size,
        streams=builder.streams(),
        strings=builder.strings.table(),
        groups=builder.groups,
        ledger=ledger,
    )


def _read_rank(
    rank: int,
    trace: KinetoTrace,
    steps: list[AnnotatedStep],
    builder: TraceBuilder,
    ledger: Ledger,
) -> KinetoRank:
    own = read_kineto_rank(trace, annotated_step_at(steps, trace.start_ns), ledger)
    own.fill_names(builder)
    for item in own.collectives:
        own.events.kind[item.row] = item.kind
        own.events.size_bytes[item.row] = item.traced_bytes
    own.fill_streams(rank, np.ones(len(trace), dtype=bool), builder)
    return own


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


def _traces_by_rank(
    files: list[Path], ledger: Ledger, budget: ReadBudget
) -> dict[int, KinetoTrace]:
    traces: dict[int, KinetoTrace] = {}
    for path in files:
        trace = read_kineto(path, ledger, budget)
        if not len(trace):
            raise InputError(f"{path} has no events", remedy="leave it out")
        rank = trace.distributed.rank
        if rank is None:
            named = _RANK_IN_NAME.search(path.name)
            rank = int(named[1]) if named else (0 if len(files) == 1 else None)
        if rank is None or not 0 <= rank < MAX_RANKS:
            raise InputError(
                f"the rank of {path} is unknown", remedy="name the files rank0.json, rank1.json"
            )
        if rank in traces:
            raise InputError(
                f"{path} is a second trace of rank {rank}", remedy="give one trace per rank"
            )
        traces[rank] = trace
    return traces


def _note_gaps(
    traces: dict[int, KinetoTrace], sizes: set[int], world_size: int, ledger: Ledger
) -> None:
    if len(sizes) > 1:
        ledger.note(
            "mismatched-world-size",
            "ranks state different world sizes; the largest is used",
            severity=Severity.ERROR,
            remedy="import traces of one job",
            example=", ".join(map(str, sorted(sizes)[:5])),
        )
    missing = [rank for rank in range(world_size) if rank not in traces]
    ledger.note(
        "missing-rank",
        "a rank has no trace",
        count=len(missing),
        remedy="import the traces of all ranks",
        example=f"rank {missing[0]}" if missing else "",
    )


def _ends_ns(one: KinetoRank) -> dict[tuple[int, int], int]:
    """End of each matched collective by (group, sequence)."""
    events = one.events
    return {
        (int(events.group[item.row]), int(events.sequence[item.row])): item.end_ns
        for item in one.collectives
        if events.sequence[item.row] >= 0 and not item.is_point_to_point
    }
