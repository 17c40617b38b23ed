"""Random traffic for engines that take short cuts: streams in tandem, wide pools, rings, gangs
among all of them, and arrivals out of turn."""

from __future__ import annotations

from random import Random

import numpy as np

from augury.core.enums import Discipline
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph, Ops, Resources

WORKS = (
    (1, 2, 3, 1, 5),
    (4, 5, 7, 6, 12, 9),
    (64, 65, 70, 100, 127, 90),
    (1_000, 1_001, 1_003, 5_000, 1_024),
    (3, 10**4, 4, 10**9, 2**33, 5),
)
"""The kernel's clock goes in slices of the shortest work: many arrivals fall into one."""

WIDTHS = ((1,), (1, 1, 2), (1, 2, 3, 7), (2, 5))


def traffic(seed: int) -> Graph:
    """200 to 600 operations on 2 to 5 ranks."""
    random = Random(seed)
    builder = GraphBuilder()
    num_ranks, num_streams = random.randint(2, 5), random.randint(3, 5)
    widths, works = random.choice(WIDTHS), random.choice(WORKS)
    priorities = random.choice(((0,), (0,), (0, 1), (0, 0, 0, -3, 5)))
    streams = []
    for _ in range(num_ranks):
        rank = builder.rank()
        streams.append(
            [
                builder.resource(
                    "stream",
                    rank=rank,
                    width=random.choice(widths),
                    discipline=random.choice(tuple(Discipline)),
                )
                for _ in range(num_streams)
            ]
        )
    makers = [_tandem, _tandem, _ring, _gangs, _wanderers, _row]
    scene = _Scene(builder, random, streams, works, priorities)
    wanted = random.randint(200, 600)
    while builder.num_ops < wanted:
        random.choice(makers)(scene)
    scene.join()
    for rank in range(num_ranks):
        builder.op("end", rank=rank, work_ns=0)
    return builder.build()


def varied(graph: Graph, seed: int) -> Graph:
    """The same structure with other durations, priorities, widths and disciplines."""
    rng = np.random.default_rng(seed)
    works = np.array(WORKS[seed % len(WORKS)])
    work_ns = rng.choice(works, graph.num_ops)
    work_ns[graph.ops.work_ns == 0] = 0
    for gang in range(graph.num_gangs):
        members = graph.gang_members.of(gang)
        work_ns[members] = work_ns[members[0]]
    ops = dict(graph.ops.columns()) | {"work_ns": work_ns}
    resources = dict(graph.resources.columns())
    if seed % 2:
        ops["priority"] = rng.choice(np.array((0, 0, 1)), graph.num_ops)
        resources["width"] = rng.choice(np.array((1, 1, 1, 2, 3)), len(graph.resources))
        resources["discipline"] = rng.choice(2, len(graph.resources))
    return graph.evolve(ops=Ops(**ops), resources=Resources(**resources))


class _Scene:
    def __init__(
        self,
        builder: GraphBuilder,
        random: Random,
        streams: list[list[int]],
        works: tuple[int, ...],
        priorities: tuple[int, ...],
    ) -> None:
        self.builder, self.random, self.streams = builder, random, streams
        self.works, self.priorities = works, priorities
        self.last_gang: dict[int, int] = {}

    @property
    def num_ranks(self) -> int:
        return len(self.streams)

    def place(self) -> tuple[int, int]:
        rank = self.random.randrange(self.num_ranks)
        return rank, self.random.choice(self.streams[rank])

    def op(
        self, rank: int, stream: int, *after: int, gang: int = NONE, work_ns: int | None = None
    ) -> int:
        return self.builder.op(
            "op",
            rank=rank,
            resource=stream,
            work_ns=self.random.choice(self.works) if work_ns is None else work_ns,
            after=after,
            priority=self.random.choice(self.priorities),
            gang=gang,
        )

    def join(self) -> None:
        """Some operations wait for one more, which comes earlier by number: no cycles."""
        num_ops = self.builder.num_ops
        for _ in range(self.random.choice((0, 3, 20))):
            first, second = sorted(self.random.sample(range(num_ops), 2))
            self.builder.edge(first, second)


def _tandem(scene: _Scene) -> None:
    """Many items over one route: each stream serves in the order of the one before, unless one
    item takes a detour, or waits for its turn without a resource."""
    random = scene.random
    route = [scene.place() for _ in range(random.randint(2, 4))]
    starts_in_a_row = random.random() < 0.5
    previous: tuple[int, ...] = ()
    for _ in range(random.randint(5, 30)):
        item: tuple[int, ...] = ()
        for hop, (rank, stream) in enumerate(route):
            if random.random() < 0.05:
                item = (scene.op(rank, NONE, *item, work_ns=random.choice((0, *scene.works))),)
            op = scene.op(rank, stream, *item, *(previous if hop == 0 else ()))
            if hop == 0 and starts_in_a_row:
                previous = (op,)
            item = (op,)


def _ring(scene: _Scene) -> None:
    """Chunks go from rank to rank over the same stream of each, and start there one after the
    other."""
    random = scene.random
    stream = random.randrange(len(scene.streams[0]))
    own: dict[int, tuple[int, ...]] = {}
    for chunk in range(random.randint(3, 12)):
        rank = chunk % scene.num_ranks
        item = own.get(rank, ())
        for _ in range(random.randint(2, scene.num_ranks + 1)):
            item = (scene.op(rank, scene.streams[rank][stream], *item),)
            rank = (rank + 1) % scene.num_ranks
        own[chunk % scene.num_ranks] = item


def _gangs(scene: _Scene) -> None:
    """Each member after compute of its own; in one order on every rank or, now and then, in any,
    which may deadlock."""
    random = scene.random
    stream = random.randrange(len(scene.streams[0]))
    in_order = random.random() < 0.95
    for _ in range(random.randint(2, 10)):
        gang = scene.builder.gang()
        work_ns = random.choice(scene.works)
        members = random.sample(range(scene.num_ranks), random.randint(2, scene.num_ranks))
        for rank in sorted(members):
            compute = scene.op(rank, random.choice(scene.streams[rank]))
            last = [scene.last_gang[rank]] if in_order and rank in scene.last_gang else []
            place = NONE if random.random() < 0.1 else scene.streams[rank][stream]
            scene.last_gang[rank] = scene.op(
                rank, place, compute, *last, gang=gang, work_ns=work_ns
            )


def _wanderers(scene: _Scene) -> None:
    random = scene.random
    recent: list[int] = []
    for _ in range(random.randint(5, 40)):
        rank, stream = scene.place()
        after = random.sample(recent, min(len(recent), random.choice((0, 1, 1, 2, 4))))
        recent = [*recent[-12:], scene.op(rank, stream, *after)]


def _row(scene: _Scene) -> None:
    rank, stream = scene.place()
    previous: tuple[int, ...] = ()
    for _ in range(scene.random.randint(3, 20)):
        previous = (scene.op(rank, stream, *previous),)
