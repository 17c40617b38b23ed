"""Random graphs: small numbers everywhere, so that many things happen at one time stamp.

A graph is drawn as a list of records of a few bytes, one byte a field: that is some four times
faster than a strategy a field, and shrinks as well, because 0 is the simplest value of every field.
A record is an operation or a collective; it may depend on earlier records only, which keeps graphs
acyclic, and its place in the numbering is a field of its own, so that ids need not be in
topological order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, Role
from augury.core.graph.builder import UNLIMITED_WIDTH, GraphBuilder
from augury.core.graph.graph import NONE, Graph

_STREAMS = 3
"""Resources of one rank; the last is the one for gangs where they must not deadlock."""

_NO_RESOURCE = _STREAMS
_CHOICES = (0, 0, 1, 0, 2, 0, 1, _NO_RESOURCE)
"""One stream is crowded: without waiting operations, order does not matter."""

TIES = (1, 2, 3, 0, 4, 5, 1, 7)
"""Small, and sometimes nothing at all."""

POSITIVE = (1, 2, 3, 1, 4, 5, 1, 7)
COARSE = (4, 5, 4, 6, 8, 9, 12, 7)
"""Nothing shorter than 4: several things happen within the shortest work, but not at once."""

SPREAD = (1_000, 1_001, 3_000, 1_000_000, 1_500, 10**9, 2**33, 7_000)
_WIDTHS = (1, 2, 1, 3, 1, 4, 1, 2)
_CAPACITIES = (1.0, 2.0, 0.5, 1.5, 0.3, 2.7)
_LINK_WIDTHS = (UNLIMITED_WIDTH, 1, 2, 3)
_RATES = (0.5, 0.9, 0.25, 1.0, 1 / 3, 0.001)


def _bytes(length: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=length, max_size=length)


class Record(NamedTuple):
    """``parents`` count backwards, 0 is none. ``members`` is a bit set of ranks: a gang when
    more than one is in it. ``late`` moves the record's ids behind others', ``skew`` is a bit set
    of ranks where it is less urgent, ``free`` may name a rank where a gang needs no resource."""

    members: int
    parent: int
    other_parent: int
    stream: int
    work: int
    priority: int
    rank: int
    late: int
    skew: int
    free: int

    def ranks(self, num_ranks: int, num_workers: int) -> list[int]:
        members = [rank for rank in range(num_workers) if self.members >> rank & 1]
        return members if len(members) > 1 else [self.rank % num_ranks]

    def parents(self, number: int) -> list[int]:
        return [number - b for b in (self.parent % 8, self.other_parent % 8) if 0 < b <= number]


class Flavour(NamedTuple):
    """What a graph is made of. ``straggler``: one rank's work takes longer; ``works``: what
    operations that hold a place may take, those without one may always take nothing."""

    works: Sequence[int] = TIES
    gangs: bool = False
    may_deadlock: bool = False
    straggler: bool = False
    servers: bool = False
    shared: bool = False
    interference: bool = False
    extras: bool = False
    """Buffers, carried edges, layers and measured steps, which an engine must not mind."""


@st.composite
def graphs(draw: st.DrawFn, *, max_records: int = 32, max_ranks: int = 3, **flavour: Any) -> Graph:
    """See ``Flavour`` for the keywords."""
    chosen = Flavour(**flavour)
    num_workers = draw(st.integers(2 if chosen.gangs or chosen.straggler else 1, max_ranks))
    num_servers = draw(st.integers(1, 2)) if chosen.servers else 0
    slow_rank = draw(st.integers(0, num_workers - 1)) if chosen.straggler else NONE
    streams = draw(_bytes((num_workers + num_servers) * _STREAMS))
    links = draw(st.integers(0, 3)) if chosen.shared else 0
    rules = draw(st.lists(_bytes(3), min_size=1, max_size=4)) if chosen.interference else []
    # Lists come out little longer than their least size: without the draw, never long.
    least = draw(st.sampled_from((3, 12, 20)))
    raw = draw(st.lists(_bytes(len(Record._fields)), min_size=least, max_size=max_records))
    extras = draw(st.lists(_bytes(4), max_size=5)) if chosen.extras else []
    return _assemble(chosen, _Draws(num_workers, slow_rank, streams, links, rules, raw, extras))


def large_graph(seed: int, *, num_records: int, num_workers: int = 4, **flavour: Any) -> Graph:
    """More than Hypothesis would draw; the same for the same seed."""
    random = Random(seed)
    chosen = Flavour(**flavour)
    num_ranks = num_workers + (2 if chosen.servers else 0)
    draws = _Draws(
        num_workers=num_workers,
        slow_rank=random.randrange(num_workers) if chosen.straggler else NONE,
        streams=random.randbytes(num_ranks * _STREAMS),
        links=random.randrange(4) if chosen.shared else 0,
        rules=[random.randbytes(3) for _ in range(4)] if chosen.interference else [],
        records=[random.randbytes(len(Record._fields)) for _ in range(num_records)],
        extras=[random.randbytes(4) for _ in range(9)] if chosen.extras else [],
    )
    return _assemble(chosen, draws)


class _Draws(NamedTuple):
    """All that is random about a graph."""

    num_workers: int
    slow_rank: int
    streams: bytes
    links: int
    rules: Sequence[bytes]
    records: Sequence[bytes]
    extras: Sequence[bytes]


def _assemble(flavour: Flavour, draws: _Draws) -> Graph:
    num_workers, num_ranks = draws.num_workers, len(draws.streams) // _STREAMS
    builder = GraphBuilder()
    for rank in range(num_ranks):
        role = Role.WORKER if rank < num_workers else Role.SERVER
        builder.rank(role=role, host=f"host{rank // 2}")
    resources = _add_resources(builder, num_ranks, draws.streams, flavour.shared, draws.links)
    _add_interference(builder, resources, draws.rules)
    records = [Record(*fields) for fields in draws.records]
    if not flavour.gangs:
        records = [record._replace(members=0) for record in records]
    placed: list[dict[int, int]] = [{} for _ in records]
    for number in sorted(range(len(records)), key=lambda i: records[i].late % 4):
        record = records[number]
        ranks = record.ranks(num_ranks, num_workers)
        is_gang = len(ranks) > 1
        gang = builder.gang() if is_gang else NONE
        chosen = [
            NONE
            if is_gang and record.free % 8 == rank + 1
            else _choose(resources[rank], record.stream, is_gang, not flavour.may_deadlock)
            for rank in ranks
        ]
        holds_a_place = any(resource != NONE for resource in chosen)
        work_ns = _pick(flavour.works if holds_a_place else TIES, record.work)
        for rank, resource in zip(ranks, chosen, strict=True):
            placed[number][rank] = builder.op(
                f"r{number}",
                kind=OpKind.ALL_REDUCE if is_gang else OpKind.OTHER,
                rank=rank,
                resource=resource,
                work_ns=work_ns * 3 if rank == draws.slow_rank and not is_gang else work_ns,
                priority=record.priority % 3 + (record.skew >> rank & 1),
                gang=gang,
            )
    _connect(builder, records, placed, loose=flavour.may_deadlock)
    if flavour.gangs and not flavour.may_deadlock:
        _chain_gangs(builder, placed, num_workers)
    for rank in range(num_workers):
        # Every rank that trains must have an operation in a step.
        builder.op("end", kind=OpKind.MARK, rank=rank, work_ns=0)
    _add_extras(builder, placed, draws.extras)
    return builder.build()


def _pick(values: Sequence[int], byte: int) -> int:
    return values[byte % len(values)]


def _choose(own: Sequence[int], stream: int, is_gang: bool, dedicated: bool) -> int:
    """When ``dedicated``, gangs alone use the last stream: no plain operation, which a gang may
    be waiting for, waits for a place that the gang holds."""
    stream = _CHOICES[stream % len(_CHOICES)]
    if stream == _NO_RESOURCE:
        return NONE
    if dedicated:
        return own[_STREAMS - 1 if is_gang else stream % (_STREAMS - 1)]
    return own[stream]


def _add_resources(
    builder: GraphBuilder, num_ranks: int, raw: bytes, shared: bool, links: int
) -> list[list[int]]:
    """``[rank][stream]``; when shared, the middle one is a link, a rank's own or common to all,
    and so may be the one for gangs."""
    is_common, gangs_share = bool(links & 1), bool(links & 2)
    common = _link(builder, NONE, raw[1]) if is_common else NONE
    resources = []
    for rank in range(num_ranks):
        own = []
        for stream, value in enumerate(raw[rank * _STREAMS : (rank + 1) * _STREAMS]):
            if is_common and stream == 1:
                own.append(common)
            elif shared and (stream == 1 or (stream == 2 and gangs_share)):
                own.append(_link(builder, rank, value))
            else:
                own.append(_stream(builder, rank, stream, value))
        resources.append(own)
    return resources


def _stream(builder: GraphBuilder, rank: int, number: int, value: int) -> int:
    return builder.resource(
        f"stream{number}",
        rank=rank,
        width=_pick(_WIDTHS, value),
        discipline=Discipline(value >> 3 & 1),
    )


def _link(builder: GraphBuilder, rank: int, value: int) -> int:
    return builder.shared_resource(
        "link",
        rank=rank,
        kind=ResourceKind.LINK_OUT,
        capacity=_CAPACITIES[value % len(_CAPACITIES)],
        width=_LINK_WIDTHS[value >> 3 & 3],
        discipline=Discipline(value >> 5 & 1),
    )


def _add_interference(
    builder: GraphBuilder, resources: Sequence[Sequence[int]], rules: Sequence[bytes]
) -> None:
    distinct = sorted({resource for own in resources for resource in own})
    for victim, aggressor, rate in rules:
        v = victim % len(distinct)
        a = (v + 1 + aggressor % (len(distinct) - 1)) % len(distinct)
        builder.interfere(
            victim=distinct[v], aggressor=distinct[a], rate=_RATES[rate % len(_RATES)]
        )


def _connect(
    builder: GraphBuilder,
    records: Sequence[Record],
    placed: Sequence[dict[int, int]],
    *,
    loose: bool,
) -> None:
    """An operation waits for its parents' on the same rank; where they have none, for another of
    theirs, unless ``loose``."""
    for number, record in enumerate(records):
        for parent in record.parents(number):
            anywhere = next(iter(placed[parent].values()))
            for rank, op in placed[number].items():
                if rank in placed[parent] or not loose or len(placed[number]) == 1:
                    builder.edge(placed[parent].get(rank, anywhere), op)


def _chain_gangs(builder: GraphBuilder, placed: Sequence[dict[int, int]], num_workers: int) -> None:
    """Every rank issues its gangs in the order of the records: no two can hold what the other
    still needs."""
    for rank in range(num_workers):
        gangs = [ops[rank] for ops in placed if len(ops) > 1 and rank in ops]
        for before, after in pairwise(gangs):
            builder.edge(before, after)


def _add_extras(
    builder: GraphBuilder, placed: Sequence[dict[int, int]], raw: Sequence[bytes]
) -> None:
    for first, second, size, flags in raw:
        rank, op = next(iter(placed[first % len(placed)].items()))
        builder.buffer(
            size,
            rank=rank,
            kind=MemoryKind(flags % len(MemoryKind)),
            taken_by=op if flags & 8 else NONE,
            given_by=placed[second % len(placed)].get(rank, NONE),
            later=bool(flags & 16),
            layer="block" if flags & 32 else None,
        )
        if flags & 64:
            builder.carry(op, next(iter(placed[second % len(placed)].values())))
        if flags & 128:
            builder.measured_step(rank=rank, step=second, dur_ns=1 + size, explained_ns=first)


# -- symmetric ranks -----------------------------------------------------------------------


class Template(NamedTuple):
    """One operation of every rank. ``reach`` 0: plain; 1: received from the rank before, where its
    first parent is; 2: a gang of the rank's group; 3: a gang of all; 4: two operations, one in a
    gang with the rank behind, one with the rank before."""

    reach: int
    parent: int
    other_parent: int
    stream: int
    work: int
    priority: int

    @property
    def is_gang(self) -> bool:
        return self.reach >= 2


class Symmetry(NamedTuple):
    """How ranks resemble each other. Groups are neighbours, or if ``strided`` every n-th
    rank; ids go rank by rank if ``by_rank``, else operation by operation."""

    scales: list[int]
    group_size: int
    strided: bool
    by_rank: bool

    @property
    def num_ranks(self) -> int:
        return len(self.scales)

    def gangs(self, reach: int, rank: int) -> list[tuple[int, ...]]:
        """One name an operation; () is no gang."""
        if reach == 2:
            num_groups = self.num_ranks // self.group_size
            return [(rank % num_groups if self.strided else rank // self.group_size,)]
        if reach == 3:
            return [(0,)]
        if reach == 4:
            return [(rank,), ((rank - 1) % self.num_ranks,)]
        return [()]


@st.composite
def symmetric_graphs(
    draw: st.DrawFn,
    *,
    max_classes: int = 1,
    works: Sequence[int] = TIES,
    reaches: Sequence[int] = (0, 1, 2, 3),
    shared: bool = False,
    interference: bool = False,
    common: bool = False,
    extras: bool = False,
    max_templates: int = 10,
) -> Graph:
    """The same template on every rank, whose work is scaled by up to ``max_classes`` factors, in
    turn or for one rank alone; with 1 all ranks are identical. ``shared``: one stream of every
    rank is a link; ``common``: all ranks have one stream in common. Pairs (``reach`` 4) may
    deadlock, and so may gangs on what is common."""
    num_ranks = draw(st.sampled_from((2, 3, 4, 6, 8)))
    scales = [1] * num_ranks
    if max_classes > 1:
        factors = draw(st.lists(st.integers(1, 3), min_size=1, max_size=max_classes - 1))
        scales = [factors[rank % len(factors)] for rank in range(num_ranks)]
        scales[draw(st.integers(0, num_ranks - 1))] = draw(st.integers(1, 4))
    divisors = [d for d in range(2, num_ranks + 1) if num_ranks % d == 0]
    symmetry = Symmetry(
        scales, draw(st.sampled_from(divisors)), draw(st.booleans()), draw(st.booleans())
    )
    builder = GraphBuilder()
    streams = draw(_bytes(_STREAMS))
    capacity = draw(st.integers(0, 255)) if shared else 0
    slowdowns = draw(_bytes(2)) if interference else b""
    everybodys = _stream(builder, NONE, 0, draw(st.integers(0, 255))) if common else NONE
    resources = []
    for rank in range(num_ranks):
        builder.rank(host=f"host{rank // 2}")
        own = [_stream(builder, rank, number, value) for number, value in enumerate(streams)]
        if shared:
            own[1] = _link(builder, rank, capacity)
        if common:
            own[0] = everybodys
        for aggressor, slowdown in zip(own[1:], slowdowns, strict=False):
            rate = _RATES[slowdown % len(_RATES)]
            builder.interfere(victim=own[0], aggressor=aggressor, rate=rate)
        resources.append(own)
    raw = draw(st.lists(_bytes(len(Template._fields)), min_size=2, max_size=max_templates))
    templates = [Template(reaches[reach % len(reaches)], *rest) for reach, *rest in raw]
    ops = _place_templates(builder, templates, resources, symmetry, works)
    _connect_templates(builder, templates, ops)
    if extras:
        for rank in range(num_ranks):
            first, last = ops[0][rank][0], ops[-1][rank][0]
            builder.buffer(10, rank=rank, taken_by=first, given_by=last)
            builder.carry(last, first)
    return builder.build()


def _place_templates(
    builder: GraphBuilder,
    templates: Sequence[Template],
    resources: Sequence[Sequence[int]],
    symmetry: Symmetry,
    works: Sequence[int],
) -> list[list[list[int]]]:
    """``[template][rank]`` -> operations."""
    num_ranks = symmetry.num_ranks
    cells = [(t, rank) for t in range(len(templates)) for rank in range(num_ranks)]
    if symmetry.by_rank:
        cells.sort(key=lambda cell: cell[1])
    numbers: dict[tuple[int, ...], int] = {}
    ops: list[list[list[int]]] = [[[] for _ in range(num_ranks)] for _ in templates]
    for t, rank in cells:
        template = templates[t]
        work_ns = _pick(works, template.work)
        for gang in symmetry.gangs(template.reach, rank):
            if gang and (t, *gang) not in numbers:
                numbers[t, *gang] = builder.gang()
            ops[t][rank].append(
                builder.op(
                    f"t{t}",
                    kind=OpKind.ALL_REDUCE if gang else OpKind.OTHER,
                    rank=rank,
                    resource=_choose(resources[rank], template.stream, bool(gang), True),
                    work_ns=work_ns if gang else work_ns * symmetry.scales[rank],
                    priority=template.priority % 3,
                    gang=numbers[t, *gang] if gang else NONE,
                )
            )
    return ops


def _connect_templates(
    builder: GraphBuilder, templates: Sequence[Template], ops: Sequence[Sequence[Sequence[int]]]
) -> None:
    gangs = [t for t, template in enumerate(templates) if template.is_gang]
    previous_gang = dict(zip(gangs[1:], gangs, strict=False))
    for t, template in enumerate(templates):
        parents = []
        if 0 < template.parent % 8 <= t:
            parents.append((t - template.parent % 8, 1 if template.reach == 1 else 0))
        if 0 < template.other_parent % 8 <= t:
            parents.append((t - template.other_parent % 8, 0))
        if t in previous_gang:
            parents.append((previous_gang[t], 0))
        for parent, distance in parents:
            for rank, own in enumerate(ops[t]):
                for source, op in product(ops[parent][rank - distance], own):
                    builder.edge(source, op)


# -- pipelines -----------------------------------------------------------------------------


class Item(NamedTuple):
    """Something that passes one stream after the other. ``twins`` is a bit set of streams where
    it is two operations, ``is_gang`` of those where all ranks do it together."""

    works: int
    shift: int
    twins: int
    is_gang: int
    priority: int
    late: int


@st.composite
def pipelines(draw: st.DrawFn, *, works: Sequence[int] = POSITIVE) -> Graph:
    """What every stream does comes from the stream before it, in one order: the shapes that an
    engine may take short cuts for."""
    num_ranks = draw(st.integers(1, 3))
    num_streams = draw(st.integers(2, 4))
    streams = draw(_bytes(num_streams))
    is_chained, has_priorities = draw(st.tuples(st.booleans(), st.booleans()))
    least = draw(st.sampled_from((2, 6, 12)))
    raw = draw(st.lists(_bytes(len(Item._fields)), min_size=least, max_size=16))
    items = [Item(*fields) for fields in raw]

    builder = GraphBuilder()
    resources = []
    for rank in range(num_ranks):
        builder.rank()
        # Mostly of width 1, where an order carries over from one stream to the next.
        resources.append(
            [
                _stream(builder, rank, number, value if value & 64 else value & ~7)
                for number, value in enumerate(streams)
            ]
        )
    ops: dict[tuple[int, int, int], list[int]] = {}
    for number in sorted(range(len(items)), key=lambda i: items[i].late % 2):
        item = items[number]
        for stream in range(num_streams):
            is_gang = num_ranks > 1 and bool(item.is_gang >> stream & item.is_gang >> 4 & 1)
            gang = builder.gang() if is_gang else NONE
            for rank in range(num_ranks):
                num_twins = 1 if is_gang else 1 + (item.twins >> stream & 1)
                ops[number, stream, rank] = [
                    builder.op(
                        f"i{number}",
                        kind=OpKind.ALL_REDUCE if is_gang else OpKind.OTHER,
                        rank=rank,
                        resource=resources[rank][stream],
                        work_ns=_pick(works, item.works + stream * item.shift),
                        priority=item.priority % 3 if has_priorities else 0,
                        gang=gang,
                    )
                    for _ in range(num_twins)
                ]
    for (number, stream, rank), own in ops.items():
        before = ops.get((number, stream - 1, rank), [])
        if stream == 0 and is_chained:
            before = ops.get((number - 1, stream, rank), [])
        for op in own:
            for source in before:
                builder.edge(source, op)
    return builder.build()


# -- crowds --------------------------------------------------------------------------------


class Flow(NamedTuple):
    """``links`` is a bit set: one member of a gang on each; ``aside`` gives the gang another
    member that holds no place."""

    links: int
    arrival: int
    work: int
    priority: int
    aside: int


@st.composite
def crowds(draw: st.DrawFn) -> Graph:
    """Flows and gangs of flows over every subset of a few links that slow each other, so many at
    once that rates change at almost every time stamp."""
    num_links = draw(st.integers(1, 4))
    raw_links = draw(_bytes(num_links))
    rules = draw(st.lists(_bytes(3), max_size=4)) if num_links > 1 else []
    least = draw(st.sampled_from((3, 16, 40)))
    raw = draw(st.lists(_bytes(len(Flow._fields)), min_size=least, max_size=60))
    builder = GraphBuilder()
    for _ in range(num_links + 1):
        builder.rank()
    links = [_link(builder, NONE, value) for value in raw_links]
    _add_interference(builder, [links], rules)
    for flow in (Flow(*fields) for fields in raw):
        members = [link for link in range(num_links) if flow.links >> link & 1] or [0]
        # A link that admits only some could make gangs over several wait for each other.
        if any(raw_links[link] >> 3 & 3 for link in members):
            members = members[:1]
        places = [(link, links[link]) for link in members]
        if flow.aside & 1:
            places.append((num_links, NONE))
        gang = builder.gang() if len(places) > 1 else NONE
        for rank, resource in places:
            wait = builder.op("wait", rank=rank, work_ns=flow.arrival % 32)
            builder.op(
                "flow",
                kind=OpKind.SEND if gang == NONE else OpKind.ALL_REDUCE,
                rank=rank,
                resource=resource,
                work_ns=_pick(TIES, flow.work) * (1 + flow.work % 5),
                priority=flow.priority % 3,
                gang=gang,
                after=[wait],
            )
    for rank in range(num_links + 1):
        builder.op("end", kind=OpKind.MARK, rank=rank, work_ns=0)
    return builder.build()
