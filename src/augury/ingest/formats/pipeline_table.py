"""Reads coarse operations of pipeline-parallel jobs: a table with one row per operation.

Times are seconds, on one clock or since the start of the step. Steps were sampled and the time
between them is unknown, so each step starts where the previous one ends, and ends with the last
operation of any rank. Sizes are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import OPERATION_TABLE, RankFacts, Steps, Trace
from augury.ingest.formats.table.group_matching import match_collectives
from augury.ingest.formats.table.message_matching import match_messages
from augury.ingest.formats.table.rank_places import RankPlaces, rank_places
from augury.ingest.formats.table.table_rows import TableRows, read_table
from augury.ingest.trace_builder import MutableEvents, TraceBuilder

SUFFIX = ".parquet"

_KIND_AND_PHASE = {
    "forward-compute": (OpKind.FORWARD, Phase.FORWARD),
    "backward-compute": (OpKind.BACKWARD, Phase.BACKWARD),
    "forward-send": (OpKind.SEND, Phase.NONE),
    "forward-recv": (OpKind.RECV, Phase.NONE),
    "backward-send": (OpKind.SEND, Phase.NONE),
    "backward-recv": (OpKind.RECV, Phase.NONE),
    "optimizer": (OpKind.UPDATE, Phase.UPDATE),
    "optimizer-clip-main-grad": (OpKind.UPDATE, Phase.UPDATE),
}
_SYNCHRONIZES = "optimizer-clip-main-grad"
"""Computes the norm of all gradients: an update that waits for all ranks."""
_COLLECTIVES = {
    "all-reduce": OpKind.ALL_REDUCE,
    "allreduce": OpKind.ALL_REDUCE,
    "all-gather": OpKind.ALL_GATHER,
    "allgather": OpKind.ALL_GATHER,
    "reduce-scatter": OpKind.REDUCE_SCATTER,
    "all-to-all": OpKind.ALL_TO_ALL,
    "broadcast": OpKind.BROADCAST,
    "barrier": OpKind.BARRIER,
}
_LOADING = ("data-load", "dataload", "batch-generator", "get-batch")


def read_pipeline_table(path: Path | Sequence[Path]) -> Trace:
    """Reads a Parquet or CSV file, or several that make up one table."""
    ledger, builder = Ledger(), TraceBuilder()
    paths = [path] if isinstance(path, Path) else path
    rows = read_table(paths, ledger)
    places = rank_places(rows, str(paths[0]))
    events = _events(rows, places, builder, ledger)
    order = np.argsort(rows.rank, kind="stable")
    ranks, begin = np.unique(rows.rank[order], return_index=True)
    place_of_row = np.empty(len(rows), dtype=np.int64)
    place_of_row[order] = np.arange(len(rows)) - np.repeat(begin, np.diff([*begin, len(rows)]))
    _fill_communication(events, rows, places, place_of_row, builder, ledger)
    for rank, own in zip(ranks.tolist(), np.split(order, begin[1:]), strict=True):
        builder.add(rank, events.at(own))
    _note_gaps(rows, places, ledger)
    return Trace(
        events=builder.events(),
        streams=builder.streams(),
        steps=_steps(rows, ranks),
        strings=builder.strings.table(),
        ranks=[RankFacts(rank=rank, host="", framework=OPERATION_TABLE) for rank in ranks.tolist()],
        world_size=int(ranks.max()) + 1,
        groups=builder.groups,
        ledger=ledger,
    )


def _kind_and_phase(optype: str) -> tuple[OpKind, Phase]:
    if optype in _KIND_AND_PHASE:
        return _KIND_AND_PHASE[optype]
    for ending, kind in _COLLECTIVES.items():
        if optype.endswith(ending):
            return kind, Phase.NONE
    if any(part in optype for part in _LOADING):
        return OpKind.DATA, Phase.DATA
    return OpKind.OTHER, Phase.NONE


def _events(
    rows: TableRows, places: RankPlaces, builder: TraceBuilder, ledger: Ledger
) -> MutableEvents:
    events = MutableEvents.blank(rows.start_ns, rows.end_ns - rows.start_ns)
    found = [_kind_and_phase(text) for text in rows.optypes]
    events.kind[:] = np.array([kind for kind, _ in found], dtype=np.uint8)[rows.optype]
    events.phase[:] = np.array([phase for _, phase in found], dtype=np.uint8)[rows.optype]
    events.step[:] = rows.steps[rows.step]
    names = [builder.strings.number(text) for text in rows.optypes]
    events.name[:] = np.array(names, dtype=np.int32)[rows.optype]
    layers = [builder.strings.number(f"stage {stage}") for stage in range(places.num_stages)]
    events.layer[:] = np.array(layers, dtype=np.int32)[rows.stage]
    keys, number = np.unique(rows.rank * len(found) + rows.optype, return_inverse=True)
    streams = [
        builder.stream(rank, *_stream(found[optype][0], rows.optypes[optype]))
        for rank, optype in (divmod(key, len(found)) for key in keys.tolist())
    ]
    events.stream[:] = np.array(streams, dtype=np.int32)[number]
    unknown = [text for text, (kind, _) in zip(rows.optypes, found, strict=True) if not kind]
    ledger.note(
        "unknown-operation",
        "an operation has an unknown kind; its time counts as work of its rank",
        severity=Severity.INFO,
        count=int((events.kind == OpKind.OTHER).sum()),
        example=", ".join(unknown)[:100],
    )
    return events


def _stream(kind: OpKind, optype: str) -> tuple[StreamKind, str]:
    if kind in (OpKind.SEND, OpKind.RECV):
        return StreamKind.COMMUNICATION, optype
    if kind.is_communication:
        return StreamKind.COMMUNICATION, "collectives"
    return StreamKind.DEVICE, "compute"


def _fill_communication(
    events: MutableEvents,
    rows: TableRows,
    places: RankPlaces,
    place_of_row: I8,
    builder: TraceBuilder,
    ledger: Ledger,
) -> None:
    """Fills group and sequence number of matched communications, and the cause of messages and of
    the compute that needs them."""
    messages = match_messages(rows, places)
    sequence = 0
    for send, receive in messages.pairs:
        ranks = tuple(sorted((int(rows.rank[send]), int(rows.rank[receive]))))
        direction = rows.optypes[int(rows.optype[send])].partition("-")[0]
        group = builder.group(ranks, f"{direction} from {rows.rank[send]}")
        events.group[[send, receive]], events.sequence[[send, receive]] = group, sequence
        sequence += 1
    for after, before in messages.cause.items():
        events.cause[after] = place_of_row[before]
    # A message that moves nothing is a pause of its stream.
    events.kind[sorted(messages.idle)] = OpKind.OTHER
    collectives = [
        optype
        for optype, text in enumerate(rows.optypes)
        if text == _SYNCHRONIZES
        or (_kind_and_phase(text)[0].is_communication and text not in _KIND_AND_PHASE)
    ]
    for one in match_collectives(rows, places, collectives):
        if len(one.rows) > 1:
            label = rows.optypes[int(rows.optype[one.rows[0]])]
            events.group[one.rows] = builder.group(one.ranks, label)
            events.sequence[one.rows] = sequence
            sequence += 1
    is_message = np.isin(events.kind, [OpKind.SEND, OpKind.RECV])
    alone = np.flatnonzero(is_message & (events.sequence < 0))
    ledger.note(
        "unmatched-communication",
        "a send or receive has no counterpart in the table; its time counts as work of its rank",
        count=len(alone),
        remedy="give the rows of all ranks",
        example=f"rank {rows.rank[alone[0]]}, step {rows.steps[rows.step[alone[0]]]}"
        if len(alone)
        else "",
    )


def _note_gaps(rows: TableRows, places: RankPlaces, ledger: Ledger) -> None:
    present = np.unique(rows.step * np.int64(1 << 20) + rows.rank)
    ledger.note(
        "incomplete-step",
        "a rank has no operation in a step",
        count=len(rows.steps) * len(places.of_rank) - len(present),
        remedy="leave incomplete steps out",
    )
    wanted = {
        (place.dp_rank, stage, place.lane)
        for place in places.of_rank.values()
        for stage in range(places.num_stages)
    }
    there = {(at.dp_rank, at.stage, at.lane) for at in places.of_rank.values()}
    missing = sorted(wanted - there)
    ledger.note(
        "missing-rank",
        "the table has no rank for a stage of a pipeline",
        count=len(missing),
        remedy="give the rows of all ranks",
        example=f"dp_rank {missing[0][0]}, stage {missing[0][1]}" if missing else "",
    )


def _steps(rows: TableRows, ranks: I8) -> Steps:
    """Returns the table of steps: each has the same start and end on all ranks."""
    num_ranks, num_steps = len(ranks), len(rows.steps)
    unknown = np.full(num_ranks * num_steps, -1, dtype=np.int64)
    return Steps(
        rank=np.repeat(ranks, num_steps).astype(np.int32),
        step=np.tile(rows.steps, num_ranks).astype(np.int32),
        start_ns=np.tile(rows.step_start_ns, num_ranks),
        end_ns=np.tile(rows.step_end_ns, num_ranks),
        state=np.full(num_ranks * num_steps, StepState.TIMED, dtype=np.uint8),
        cpu_ns=unknown,
        delay_ns=unknown,
        helper_cpu_ns=unknown,
    )
