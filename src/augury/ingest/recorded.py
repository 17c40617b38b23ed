"""Reads a run folder of ``augury run`` as a Trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from augury.core.enums import OpKind, StreamKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import RankRecord
from augury.core.trace.trace import Clock, Trace
from augury.ingest.clocks.rank_clocks import Source, align, fits
from augury.ingest.collectives.calls import PIECES
from augury.ingest.collectives.collective_ids import number_collectives
from augury.ingest.collectives.p2p_exchanges import add_exchanges
from augury.ingest.formats.rank_record import read_records, world_size
from augury.ingest.rank.recorded_rank import RecordedRank, read_rank
from augury.ingest.rank.steps import recorded_step_table, step_at
from augury.ingest.run_facts import calibration_of, gradients_of, memory_of, rank_facts
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget
from augury.ingest.trace_builder import MutableEvents, TraceBuilder
from augury.ingest.wire.clocks.byte_flows import clocks_of_ranks


def read_run(folder: Path, *, clocks: Source = "auto", max_bytes: int = MAX_RUN_BYTES) -> Trace:
    """Raises an InputError if the folder has no record, records of two jobs, or files that unpack
    to more than ``max_bytes`` in total. Gaps are noted in the ledger."""
    ledger, budget = Ledger(), ReadBudget(folder, max_bytes)
    records = read_records(folder, ledger, budget)
    if not records:
        raise InputError(
            f"{folder} contains no rank record"
            + "".join(f": {a.example}" for a in ledger if a.name == "unreadable-record"),
            remedy="record one with `augury run --out DIR -- COMMAND`",
        )
    builder = TraceBuilder()
    ranks = [read_rank(folder, record, builder, ledger, budget) for record in records]
    _note_untraced(records, ledger)
    number_collectives(ranks, builder, ledger)
    for rank in ranks:
        _add_waits(rank, builder)
    rank_clocks = _clocks(folder, ranks, ledger, clocks, budget)
    for rank in ranks:
        for part in rank.parts:
            part.move_to(rank_clocks[rank.record.rank])
            builder.add(rank.record.rank, part)
    add_exchanges(records, rank_clocks, builder, ledger)
    events = builder.events()
    size = world_size(records)
    return Trace(
        events=events,
        steps=recorded_step_table(records, rank_clocks),
        gradients=gradients_of(records, builder),
        memory=memory_of(records, builder, ledger),
        calibration=calibration_of(records, builder),
        ranks=[
            rank_facts(record, rank_clocks[record.rank], builder.groups_for(PIECES))
            for record in records
        ],
        world_size=size,
        # Last, because all of the above may add strings and groups.
        streams=builder.streams(),
        strings=builder.strings.table(),
        groups=builder.groups,
        ledger=ledger,
    )


def clock_sources(folder: Path) -> dict[Source, dict[int, Clock]]:
    """Returns the clocks of ranks by each source alone, for comparison."""
    aside = Ledger()
    budget = ReadBudget(folder)
    records = read_records(folder, aside, budget)
    if not records:
        return {}
    builder = TraceBuilder()
    ranks = [read_rank(folder, record, builder, aside, budget) for record in records]
    number_collectives(ranks, builder, aside)
    ends = {rank.record.rank: _ends_ns(rank) for rank in ranks}
    reference = min(ends)
    wire = clocks_of_ranks(folder, reference, aside, budget)
    found: dict[Source, dict[int, Clock]] = {}
    for record in records:
        if record.rank != reference:
            fitted = fits(record.rank, reference, record.handshake, ends, wire, "auto")
            for source, clock in fitted.items():
                found.setdefault(source, {})[record.rank] = clock
    return found


def _clocks(
    folder: Path,
    ranks: list[RecordedRank],
    ledger: Ledger,
    source: Source,
    budget: ReadBudget,
) -> dict[int, Clock]:
    hosts = {rank.record.rank: rank.record.host for rank in ranks}
    is_wanted = source in ("auto", "wire")
    return align(
        hosts,
        {rank.record.rank: rank.record.handshake for rank in ranks},
        {rank.record.rank: _ends_ns(rank) for rank in ranks},
        ledger,
        wire=clocks_of_ranks(folder, min(hosts), ledger, budget) if is_wanted else {},
        source=source,
    )


def _ends_ns(rank: RecordedRank) -> dict[tuple[int, int], int]:
    """End of each matched collective by (group, sequence). Sends are left out: they may end long
    before the receive."""
    found: dict[tuple[int, int], int] = {}
    for item in rank.collectives:
        events = rank.parts[item.window]
        sequence = int(events.sequence[item.row])
        if sequence != NONE and not item.is_point_to_point and not item.is_estimated:
            found[int(events.group[item.row]), sequence] = item.end_ns
    return found


def _add_waits(rank: RecordedRank, builder: TraceBuilder) -> None:
    """Adds the program's waits for its own communication to the main thread, each with the group
    and sequence of what it waited for."""
    waited = [
        (item, item.call)
        for item in rank.collectives
        if item.call is not None
        and item.call.waited_until_ns > item.call.waited_from_ns
        and rank.parts[item.window].sequence[item.row] != NONE
    ]
    if not waited:
        return
    start_ns = np.array([call.waited_from_ns for _, call in waited], dtype=np.int64)
    end_ns = np.array([call.waited_until_ns for _, call in waited], dtype=np.int64)
    events = MutableEvents.blank(start_ns, end_ns - start_ns)
    events.kind[:] = OpKind.SYNC
    events.name[:] = builder.strings.number("wait")
    events.stream[:] = builder.stream(rank.record.rank, StreamKind.MAIN_THREAD, "main thread")
    events.step[:] = step_at(rank.record, start_ns)
    for row, (item, _) in enumerate(waited):
        awaited = rank.parts[item.window]
        events.group[row] = awaited.group[item.row]
        events.sequence[row] = awaited.sequence[item.row]
    rank.parts.append(events)


def _note_untraced(records: list[RankRecord], ledger: Ledger) -> None:
    for record in records:
        if record.trouble:
            ledger.note(
                "not-recorded",
                "a rank has no trace of a window",
                severity=Severity.ERROR,
                remedy="choose a window within the job with --steps",
                example=f"rank {record.rank}: {record.trouble[:300]}",
            )
    traced = np.array([any(w.trace for w in record.all_windows) for record in records])
    quiet = [r.rank for r, has in zip(records, traced, strict=True) if not has and not r.trouble]
    if traced.any():
        ledger.note(
            "rank-without-trace",
            "a rank recorded the ends of its steps and no trace",
            severity=Severity.INFO,
            count=len(quiet),
            example=f"rank {quiet[0]}" if quiet else "",
        )
