"""A folder that ``augury run`` wrote, as a Trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import RankRecord
from augury.core.trace.trace import Clock, Trace
from augury.ingest.clocks.rank_clocks import Source, align, fits
from augury.ingest.collectives.calls import PIECES
from augury.ingest.collectives.collective_ids import number
from augury.ingest.collectives.p2p_exchanges import draft_swaps
from augury.ingest.formats.rank_record import read_records, world_size
from augury.ingest.rank.recorded_rank import RecordedRank, read_rank
from augury.ingest.rank.steps import steps_of
from augury.ingest.rank.waits import draft_waits
from augury.ingest.run_facts import calibration_of, gradients_of, memory_of, rank_facts
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget
from augury.ingest.trace_builder import Workshop
from augury.ingest.wire.clocks.byte_flows import clocks_of_ranks


def read_run(folder: Path, *, clocks: Source = "auto", max_bytes: int = MAX_RUN_BYTES) -> Trace:
    """Raises an InputError where nothing was recorded, where two jobs were, or where the files
    unpack to more than ``max_bytes`` together; gaps are named in the ledger."""
    ledger, budget = Ledger(), ReadBudget(folder, max_bytes)
    records = read_records(folder, ledger, budget)
    if not records:
        raise InputError(
            f"{folder} holds no record of a run"
            + "".join(f": {a.example}" for a in ledger if a.name == "unreadable-record"),
            remedy="record one with `augury run --out DIR -- COMMAND`",
        )
    workshop = Workshop()
    ranks = [read_rank(folder, record, workshop, ledger, budget) for record in records]
    _note_untraced(records, ledger)
    number(ranks, workshop, ledger)
    for rank in ranks:
        draft_waits(rank, workshop)
    lines = _clocks(folder, ranks, ledger, clocks, budget)
    for rank in ranks:
        for draft in rank.drafts:
            draft.move_to(lines[rank.record.rank])
            workshop.add(rank.record.rank, draft)
    draft_swaps(records, lines, workshop, ledger)
    events = workshop.events()
    size = world_size(records)
    return Trace(
        events=events,
        steps=steps_of(records, lines),
        gradients=gradients_of(records, workshop),
        memory=memory_of(records, workshop, ledger),
        calibration=calibration_of(records, workshop),
        ranks=[
            rank_facts(record, lines[record.rank], workshop.groups_for(PIECES))
            for record in records
        ],
        world_size=size,
        # What was numbered last: all of the above may name strings and groups.
        streams=workshop.streams(),
        strings=workshop.strings.table(),
        groups=workshop.groups,
        ledger=ledger,
    )


def clock_sources(folder: Path) -> dict[Source, dict[int, Clock]]:
    """What each source by itself says of the clocks of ranks, of those of whom it says anything:
    for comparing them."""
    aside = Ledger()
    budget = ReadBudget(folder)
    records = read_records(folder, aside, budget)
    if not records:
        return {}
    workshop = Workshop()
    ranks = [read_rank(folder, record, workshop, aside, budget) for record in records]
    number(ranks, workshop, aside)
    ends = {rank.record.rank: _ends(rank) for rank in ranks}
    reference = min(ends)
    wire = clocks_of_ranks(folder, reference, aside, budget)
    found: dict[Source, dict[int, Clock]] = {}
    for record in records:
        if record.rank != reference:
            said = fits(record.rank, reference, record.handshake, ends, wire, "auto")
            for source, clock in said.items():
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
        {rank.record.rank: _ends(rank) for rank in ranks},
        ledger,
        wire=clocks_of_ranks(folder, min(hosts), ledger, budget) if is_wanted else {},
        source=source,
    )


def _ends(rank: RecordedRank) -> dict[tuple[int, int], int]:
    """Of collectives that were seen to end: a send may be over long before it is received."""
    found: dict[tuple[int, int], int] = {}
    for item in rank.collectives:
        draft = rank.drafts[item.window]
        sequence = int(draft.sequence[item.row])
        if sequence != NONE and not item.is_from_one_to_one and not item.is_estimated:
            found[int(draft.group[item.row]), sequence] = item.end_ns
    return found


def _note_untraced(records: list[RankRecord], ledger: Ledger) -> None:
    for record in records:
        if record.trouble:
            ledger.note(
                "not-recorded",
                "a rank has no trace of the window",
                severity=Severity.ERROR,
                remedy="choose a window within the job with --steps",
                example=f"rank {record.rank}: {record.trouble[:300]}",
            )
    traced = np.array([any(w.trace for w in record.all_windows) for record in records])
    quiet = [r.rank for r, has in zip(records, traced, strict=True) if not has and not r.trouble]
    if traced.any():
        ledger.note(
            "rank-without-trace",
            "a rank told when its steps ended and no more",
            severity=Severity.INFO,
            count=len(quiet),
            example=f"rank {quiet[0]}" if quiet else "",
        )
