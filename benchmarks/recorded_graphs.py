"""Random graphs in the style of recorded runs: shared links, interference, gangs, host threads.

Two styles, like the graphs that are built from recordings:

- ``threads``: a main thread, a device stream and loader threads on every rank; collectives are
  gangs on shared communication streams; compute and communication slow each other down; single
  ranks have delays of their own.
- ``links``: collectives are expanded into transfers, each a gang of a sender's and a receiver's
  operation on links that all ranks of a host share, in rings of random order and among random
  pairs; compute slows while its host's links are busy.
"""

from __future__ import annotations

from random import Random

from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph

RATED_STYLES = ("threads", "links")


def recorded(
    style: str, num_ops: int, *, num_ranks: int = 8, seed: int = 1, is_loop: bool = False
) -> Graph:
    """Adds steps until there are about ``num_ops`` operations. ``is_loop``: the first step waits
    for the last step of the preceding window."""
    run = _RecordedRun(style, num_ranks, Random(seed))
    while run.builder.num_ops < num_ops:
        run.add_step()
    if is_loop:
        run.close_loop()
    return run.builder.build()


def crowded(num_flows: int, *, seed: int = 1, is_shuffled: bool = False) -> Graph:
    """Builds a graph in which all flows share one link. One third of the flows are pairs that end
    together. They arrive within a tenth of the time that they take, next to an interfering stream.
    Every rank issues its flows one after the other, so that flow numbers rise with arrival times,
    as in recorded graphs; with ``is_shuffled`` arrival times are independent of the numbers."""
    random = Random(seed)
    builder = GraphBuilder()
    ranks = [builder.rank() for _ in range(8)]
    link = builder.shared_resource("link", capacity=1.0)
    stream = builder.resource("compute", rank=ranks[0])
    builder.interfere(victim=link, aggressor=stream, rate=0.9)
    before: list[int] = []
    for _ in range(max(1, num_flows // 64)):
        pause = builder.op(
            "pause", rank=ranks[0], work_ns=random.randrange(1, 40_000), after=before
        )
        before = [
            builder.op(
                "compute",
                rank=ranks[0],
                resource=stream,
                work_ns=random.randrange(1, 40_000),
                after=[pause],
            )
        ]
    issued: dict[int, list[int]] = {rank: [] for rank in ranks}
    flow = 0
    while flow < num_flows:
        members = 2 if random.random() < 0.2 else 1
        gang = builder.gang() if members > 1 else NONE
        work_ns = random.randrange(1_000, 20_000)
        for rank in random.sample(ranks, members):
            late_ns = random.randrange(num_flows * 1_000 if is_shuffled else 16_000)
            late = builder.op("arrive", rank=rank, work_ns=late_ns, after=issued[rank])
            if not is_shuffled:
                issued[rank] = [late]
            builder.op(
                "flow",
                kind=OpKind.SEND,
                rank=rank,
                resource=link,
                work_ns=work_ns,
                gang=gang,
                after=[late],
            )
        flow += members
    return builder.build()


class _RecordedRun:
    def __init__(self, style: str, num_ranks: int, random: Random) -> None:
        self.builder = GraphBuilder(meta={"source": f"recorded style: {style}"})
        self._random = random
        self._expands = style == "links"
        self._num_ranks = num_ranks
        self._step = 0
        self._before: list[list[int]] = [[] for _ in range(num_ranks)]
        self._first: list[int] = [NONE] * num_ranks
        self._layers = [self._sample_ns(120_000) for _ in range(random.randrange(12, 30))]
        self._open()

    def _sample_ns(self, typical_ns: float) -> int:
        return 1 + int(self._random.lognormvariate(0.0, 0.7) * typical_ns)

    def _open(self) -> None:
        builder, random = self.builder, self._random
        per_host = max(1, self._num_ranks // random.choice((2, 4)))
        self._host = [rank // per_host for rank in range(self._num_ranks)]
        for rank in range(self._num_ranks):
            builder.rank(host=f"host{self._host[rank]}")
        every = range(self._num_ranks)
        self._main = [builder.resource("main thread", rank=rank) for rank in every]
        self._loaders = [builder.resource("loader", rank=rank, width=2) for rank in every]
        self._device = [
            builder.resource("device", rank=rank, discipline=Discipline.FIFO) for rank in every
        ]
        width = random.choice((1, 2, 3))
        self._groups = [
            [
                builder.shared_resource(
                    f"communication, group {group}",
                    rank=rank,
                    kind=ResourceKind.COMMUNICATION,
                    width=width,
                    discipline=Discipline.FIFO,
                )
                for rank in every
            ]
            for group in range(2)
        ]
        hosts = range(max(self._host) + 1)
        self._out = [builder.shared_resource(f"out {h}", capacity=1.5) for h in hosts]
        self._in = [
            builder.shared_resource(f"in {h}", capacity=1.0, kind=ResourceKind.LINK_IN)
            for h in hosts
        ]
        for rank in every:
            for streams in self._groups:
                self._slow(self._device[rank], streams[rank], 0.75, 0.97)
                self._slow(streams[rank], self._device[rank], 0.8, 0.99)
            self._slow(self._main[rank], self._loaders[rank], 0.9, 1.0)
            if self._expands:
                self._slow(self._device[rank], self._in[self._host[rank]], 0.8, 0.98)

    def _slow(self, victim: int, aggressor: int, low: float, high: float) -> None:
        rate = self._random.uniform(low, high)
        self.builder.interfere(victim=victim, aggressor=aggressor, rate=rate)

    def add_step(self) -> None:
        """Adds forward and backward of all layers, launched by the main thread; gradients are
        reduced in random buckets while backward continues."""
        tails = [list(before) for before in self._before]
        for rank in range(self._num_ranks):
            tails[rank] = [self._load(rank, tails[rank])]
        forward = [self._launched(rank, "forward", OpKind.FORWARD, tails) for rank in self._each()]
        last = [ops[-1] for ops in forward]
        reduced: list[list[int]] = [[] for _ in self._each()]
        bucket = 0
        for layer in reversed(range(len(self._layers))):
            for rank in self._each():
                last[rank] = self._compute(rank, "backward", OpKind.BACKWARD, layer, [last[rank]])
                self._hold(rank, forward[rank][layer], last[rank], layer)
            if layer == 0 or self._random.random() < 0.35:
                ends = self._reduce(bucket, last)
                reduced = [[*r, *e] for r, e in zip(reduced, ends, strict=True)]
                bucket += 1
        for rank in self._each():
            synced = self._mark(rank, [*reduced[rank], last[rank]])
            update = self._compute(rank, "update", OpKind.UPDATE, 0, [synced])
            self._before[rank] = [update]
        self._step += 1

    def close_loop(self) -> None:
        for rank in self._each():
            self.builder.carry(self._before[rank][0], self._first[rank])

    def _each(self) -> range:
        return range(self._num_ranks)

    def _op(self, name: str, kind: OpKind, rank: int, work_ns: int, **more: object) -> int:
        return self.builder.op(
            name,
            kind=kind,
            rank=rank,
            work_ns=work_ns,
            step=self._step,
            **more,  # type: ignore[arg-type]
        )

    def _load(self, rank: int, after: list[int]) -> int:
        loads = [
            self._op(
                "load",
                OpKind.DATA,
                rank,
                self._sample_ns(80_000),
                resource=self._loaders[rank],
                priority=self._random.randrange(2),
                after=after,
            )
            for _ in range(self._random.randrange(1, 4))
        ]
        if self._first[rank] == NONE:
            self._first[rank] = loads[0]
        return self._mark(rank, [*after, *loads])

    def _mark(self, rank: int, after: list[int]) -> int:
        return self._op("mark", OpKind.MARK, rank, 0, after=after)

    def _launched(self, rank: int, name: str, kind: OpKind, tails: list[list[int]]) -> list[int]:
        ops: list[int] = []
        before = tails[rank]
        for layer in range(len(self._layers)):
            launch = self._op(
                "launch",
                OpKind.LAUNCH,
                rank,
                self._sample_ns(20_000),
                resource=self._main[rank],
                after=before,
            )
            before = [launch]
            ops.append(self._compute(rank, name, kind, layer, [launch, *ops[-1:]]))
        return ops

    def _compute(self, rank: int, name: str, kind: OpKind, layer: int, after: list[int]) -> int:
        work_ns = int(self._layers[layer] * self._random.lognormvariate(0.0, 0.1)) + 1
        device = self._device[rank]
        if self._random.random() < 0.1:
            after = [self._op("gap", OpKind.DELAY, rank, self._sample_ns(9_000), after=after)]
        return self._op(
            f"{name}{layer}", kind, rank, work_ns, resource=device, layer=f"l{layer}", after=after
        )

    def _hold(self, rank: int, taken_by: int, given_by: int, layer: int) -> None:
        self.builder.buffer(
            1_000 * (1 + layer),
            rank=rank,
            kind=MemoryKind.ACTIVATION,
            taken_by=taken_by,
            given_by=given_by,
            layer=f"l{layer}",
        )

    def _reduce(self, bucket: int, ready: list[int]) -> list[list[int]]:
        """Adds a reduction; returns its last operations by rank."""
        if self._expands:
            return self._transfers(bucket, ready)
        members = list(self._each())
        if self._random.random() < 0.25:
            members = sorted(self._random.sample(members, max(2, len(members) // 2)))
        streams = self._groups[self._random.random() < 0.3]
        gang, work_ns = self.builder.gang(), self._sample_ns(300_000)
        ends: list[list[int]] = [[] for _ in self._each()]
        for rank in members:
            called = self._op(
                "picked up", OpKind.DELAY, rank, self._sample_ns(5_000), after=[ready[rank]]
            )
            ends[rank] = [
                self._op(
                    f"bucket{bucket}",
                    OpKind.ALL_REDUCE,
                    rank,
                    work_ns,
                    resource=streams[rank],
                    gang=gang,
                    size_bytes=work_ns,
                    after=[called],
                )
            ]
        return ends

    def _transfers(self, bucket: int, ready: list[int]) -> list[list[int]]:
        """Adds a ring in random order, or random pairs. Each transfer occupies the outgoing link of
        the sender's host and the incoming link of the receiver's host."""
        ranks = list(self._each())
        self._random.shuffle(ranks)
        ends = [[op] for op in ready]
        for _ in range(self._random.randrange(1, 4)):
            arrived = [list(own) for own in ends]
            for sender, receiver in zip(ranks, [*ranks[1:], ranks[0]], strict=True):
                work_ns, gang = self._sample_ns(60_000), self.builder.gang()
                for rank, kind, link in (
                    (sender, OpKind.SEND, self._out[self._host[sender]]),
                    (receiver, OpKind.RECV, self._in[self._host[receiver]]),
                ):
                    op = self._op(
                        f"transfer{bucket}",
                        kind,
                        rank,
                        work_ns,
                        resource=link,
                        gang=gang,
                        size_bytes=work_ns,
                        priority=self._random.randrange(3),
                        after=ends[rank],
                    )
                    arrived[rank].append(op)
            ends = [[self._mark(rank, own)] for rank, own in enumerate(arrived)]
        return ends
