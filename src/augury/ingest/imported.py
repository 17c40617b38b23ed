"""Traces that others recorded, one file a rank, as one Trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Clock, RankFacts, Steps, Trace
from augury.ingest.clocks.rank_clocks import Source, align, to_common
from augury.ingest.collectives.sequence_alignment import Sequenced, slide
from augury.ingest.formats.kineto import KinetoTrace, read_kineto
from augury.ingest.formats.pipeline_table import SUFFIX, read_pipeline_table
from augury.ingest.rank.imported_rank import Found, ImportedRank, import_rank
from augury.ingest.run_files import MAX_RUN_BYTES, ReadBudget
from augury.ingest.trace_builder import Workshop

MAX_RANKS = 1 << 14
_RANK = re.compile(r"rank[-_ ]?0*(\d{1,5})", re.IGNORECASE)


def import_traces(
    paths: Sequence[Path], *, clocks: Source = "auto", max_bytes: int = MAX_RUN_BYTES
) -> Trace:
    """A folder stands for the traces in it; ``max_bytes`` caps what they unpack to together. An
    InputError says where ranks do not fit together."""
    tables = [*paths, *(p for path in paths if path.is_dir() for p in path.glob(f"*{SUFFIX}"))]
    tables = [path for path in tables if path.name.endswith(SUFFIX) and path.is_file()]
    if len(tables) == 1:
        return read_pipeline_table(tables[0])
    ledger, workshop = Ledger(), Workshop()
    traces = _by_rank(_files(paths), ledger, ReadBudget(paths[0], max_bytes))
    said = [t.distributed.world_size or 0 for t in traces.values()]
    world = max([max(traces) + 1, *(size for size in said if size <= MAX_RANKS)])
    _note_gaps(traces, {size for size in said if size}, world, ledger)
    ranks = [import_rank(rank, trace, workshop, ledger) for rank, trace in sorted(traces.items())]
    _number(ranks, world, workshop, ledger)
    lines = align(
        {one.rank: one.trace.host for one in ranks},
        {},
        {one.rank: _ends(one) for one in ranks},
        ledger,
        source=clocks,
    )
    for one in ranks:
        one.draft.move_to(lines[one.rank])
        workshop.add(one.rank, one.draft)
    return Trace(
        events=workshop.events(),
        steps=_steps(ranks, lines),
        ranks=[
            RankFacts(rank=one.rank, host=one.trace.host, framework="torch", clock=lines[one.rank])
            for one in ranks
        ],
        world_size=world,
        streams=workshop.streams(),
        strings=workshop.strings.table(),
        groups=workshop.groups,
        ledger=ledger,
    )


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = [*path.glob("*.json"), *path.glob("*.json.gz")] if path.is_dir() else [path]
        found += sorted(inside)
    if not found:
        raise InputError("there are no traces", remedy="give JSON files of torch's profiler")
    if len(found) > MAX_RANKS:
        raise InputError(f"{len(found)} traces are more than {MAX_RANKS}", remedy="give fewer")
    return found


def _by_rank(files: list[Path], ledger: Ledger, budget: ReadBudget) -> dict[int, KinetoTrace]:
    traces: dict[int, KinetoTrace] = {}
    for path in files:
        trace = read_kineto(path, ledger, budget)
        if not len(trace):
            raise InputError(f"{path} has no events", remedy="leave it out")
        rank = trace.distributed.rank
        if rank is None:
            named = _RANK.search(path.name)
            rank = int(named[1]) if named else (0 if len(files) == 1 else None)
        if rank is None or not 0 <= rank < MAX_RANKS:
            raise InputError(
                f"{path} does not say of which rank it is", remedy="name it rank0.json, rank1.json"
            )
        if rank in traces:
            raise InputError(
                f"{path} is of rank {rank}, and so is another", remedy="give one step's traces"
            )
        traces[rank] = trace
    return traces


def _note_gaps(traces: dict[int, KinetoTrace], sizes: set[int], world: int, ledger: Ledger) -> None:
    if len(sizes) > 1:
        ledger.note(
            "mismatched-world-size",
            "ranks disagree on how many there are: the largest number is taken",
            severity=Severity.ERROR,
            remedy="import traces of one job",
            example=", ".join(map(str, sorted(sizes)[:5])),
        )
    missing = [rank for rank in range(world) if rank not in traces]
    ledger.note(
        "missing-rank",
        "there is no trace of a rank",
        count=len(missing),
        remedy="import all ranks' traces",
        example=f"rank {missing[0]}" if missing else "",
    )


def _number(ranks: list[ImportedRank], world: int, workshop: Workshop, ledger: Ledger) -> None:
    """By communicator: the ranks of a group, and the stream on which it runs."""
    lists: dict[int, dict[int, list[Found]]] = defaultdict(lambda: defaultdict(list))
    everybody = tuple(range(world))
    for one in ranks:
        for item in one.found:
            group = workshop.group(item.group or everybody, item.communicator)
            one.draft.group[item.row] = group
            lists[group][one.rank].append(item)
    by_rank = {one.rank: one for one in ranks}
    matched: set[int] = set()
    why = "they did other things"
    for parts in lists.values():
        # The rank with most of them has seen what any other has.
        reference = max(parts, key=lambda rank: (len(parts[rank]), -rank))
        sequenced = {rank: _sequenced(by_rank[rank], items) for rank, items in parts.items()}
        slides = {reference: 0}
        for rank in parts:
            if rank == reference:
                continue
            match = slide(sequenced[rank], sequenced[reference])
            if match is None or match.doubt:
                why = match.doubt if match else why
                _note_unmatched(ledger, len(parts[rank]), why)
                continue
            slides[rank] = match.slide
            matched |= {rank, reference}
        _assign(parts, slides, sequenced, by_rank, ledger)
    _refuse_strangers(lists, matched, why)


def _sequenced(one: ImportedRank, items: list[Found]) -> Sequenced:
    ends = one.draft.end_ns
    return Sequenced(
        # What one rank sends of an all-to-all is not what another does.
        what=[(i.kind, 0 if i.kind == OpKind.ALL_TO_ALL else i.size_bytes) for i in items],
        end_ns=np.array([ends[i.row] for i in items], dtype=np.int64),
        number=[i.number for i in items],
    )


def _assign(
    parts: dict[int, list[Found]],
    slides: dict[int, int],
    sequenced: dict[int, Sequenced],
    by_rank: dict[int, ImportedRank],
    ledger: Ledger,
) -> None:
    first = min(slides.values())
    places: dict[int, dict[int, int]] = defaultdict(dict)
    for rank, by in slides.items():
        for i in range(len(parts[rank])):
            places[i + by - first][rank] = i
    for sequence, who in sorted(places.items()):
        if len(who) < len(slides) or len({sequenced[r].what[i] for r, i in who.items()}) > 1:
            _note_unmatched(ledger, len(who), "not all ranks recorded it")
            continue
        for rank, i in who.items():
            by_rank[rank].draft.sequence[parts[rank][i].row] = sequence


def _refuse_strangers(
    lists: dict[int, dict[int, list[Found]]], matched: set[int], why: str
) -> None:
    together = {rank for parts in lists.values() if len(parts) > 1 for rank in parts}
    strangers = sorted(together - matched)
    if strangers:
        raise InputError(
            f"nothing that rank {strangers[0]} communicated fits what other ranks did: {why}",
            remedy="give traces of one job over the same steps",
        )


def _note_unmatched(ledger: Ledger, count: int, why: str) -> None:
    ledger.note(
        "unmatched-communication",
        "a communication has no counterpart on another rank",
        count=count,
        remedy="record all ranks over the same steps",
        example=why,
    )


def _ends(one: ImportedRank) -> dict[tuple[int, int], int]:
    draft, ends = one.draft, one.draft.end_ns
    return {
        (int(draft.group[i.row]), int(draft.sequence[i.row])): int(ends[i.row])
        for i in one.found
        if draft.sequence[i.row] >= 0 and i.kind not in (OpKind.SEND, OpKind.RECV)
    }


def _steps(ranks: list[ImportedRank], clocks: dict[int, Clock]) -> Steps:
    rows = [(one.rank, *step) for one in ranks for step in one.steps]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    size = table.shape[1]
    moved = table[2:4].copy()
    for rank, clock in clocks.items():
        own = table[0] == rank
        moved[:, own] = to_common(clock, moved[:, own])
    unknown = np.full(size, -1, dtype=np.int64)
    return Steps(
        rank=table[0].astype(np.int32),
        step=table[1].astype(np.int32),
        start_ns=moved[0],
        end_ns=moved[1],
        state=table[4].astype(np.uint8),
        cpu_ns=unknown,
        delay_ns=unknown,
        helper_cpu_ns=unknown,
    )
