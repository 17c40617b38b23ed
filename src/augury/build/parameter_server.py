"""Parameter servers: workers push gradients, servers sum and update, workers pull parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from augury.build.chunks import capped_chunks
from augury.build.ports import Ports
from augury.build.transfer import Move, Wire
from augury.core.builder import GraphBuilder
from augury.core.kinds import OpKind, ResourceKind
from augury.core.units import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Servers:
    """``ports`` and ``threads`` of every server, and how fast one thread works."""

    ports: Ports
    threads: tuple[int, ...]
    partition_bytes: int
    copy_bytes_per_s: int
    sum_bytes_per_s: int
    update_bytes_per_s: int

    def __len__(self) -> int:
        return len(self.threads)


def open_servers(
    builder: GraphBuilder,
    ports: Ports,
    *,
    partition_bytes: int = 4_000_000,
    num_threads: int = 4,
    copy_bytes_per_s: int = 10_000_000_000,
    sum_bytes_per_s: int = 5_000_000_000,
    update_bytes_per_s: int = 5_000_000_000,
) -> Servers:
    threads = tuple(
        builder.resource("server", rank=port.rank, kind=ResourceKind.SERVER, width=num_threads)
        for port in ports.members
    )
    return Servers(
        ports=ports,
        threads=threads,
        partition_bytes=partition_bytes,
        copy_bytes_per_s=copy_bytes_per_s,
        sum_bytes_per_s=sum_bytes_per_s,
        update_bytes_per_s=update_bytes_per_s,
    )


def push_pull(
    builder: GraphBuilder,
    ports: Ports,
    *,
    servers: Servers,
    home: Sequence[int],
    size_bytes: int,
    after: Sequence[int],
    name: str,
    step: int = 0,
    priority: int = 0,
) -> list[int]:
    """A Collective once ``servers`` and ``home``, the server of each partition, are given."""
    parts = capped_chunks(size_bytes, servers.partition_bytes)
    pulled: list[list[int]] = [[] for _ in after]
    done = Wire(builder=builder, ports=ports, name=name, step=step)
    for number, (server, part_bytes) in enumerate(zip(home, parts, strict=True)):
        call = _Partition(
            builder=builder,
            workers=ports,
            servers=servers,
            server=server,
            size_bytes=part_bytes,
            name=f"{name}/part{number}" if len(parts) > 1 else name,
            step=step,
            priority=priority,
        )
        updated = call.update(call.push(after))
        for arrivals, arrival in zip(pulled, call.pull(updated), strict=True):
            arrivals.append(arrival)
    return [done.join(port, arrivals) for port, arrivals in zip(ports.members, pulled, strict=True)]


@dataclass(frozen=True, kw_only=True)
class _Partition:
    builder: GraphBuilder
    workers: Ports
    servers: Servers
    server: int
    size_bytes: int
    name: str
    step: int
    priority: int

    def push(self, after: Sequence[int]) -> list[int]:
        wire = self._wire(OpKind.PUSH, OpKind.RECV)
        there = self.servers.ports[self.server]
        return wire.move(
            [
                Move(port, there, self.size_bytes, (before,))
                for port, before in zip(self.workers.members, after, strict=True)
            ],
            "push",
        )

    def update(self, arrived: Sequence[int]) -> int:
        """The first to arrive is copied, the others are added to it. Which one is first only
        replay can tell, and only its cost differs: the first worker's stands for it."""
        costs = self.servers
        summed = []
        for number, arrival in enumerate(arrived):
            kind, rate = OpKind.SERVER_SUM, costs.sum_bytes_per_s
            if number == 0:
                kind, rate = OpKind.SERVER_COPY, costs.copy_bytes_per_s
            summed.append(self._work(kind, rate, (arrival,)))
        return self._work(OpKind.SERVER_UPDATE, costs.update_bytes_per_s, summed)

    def pull(self, updated: int) -> list[int]:
        wire = self._wire(OpKind.SEND, OpKind.PULL)
        there = self.servers.ports[self.server]
        return wire.move(
            [Move(there, port, self.size_bytes, (updated,)) for port in self.workers.members],
            "pull",
        )

    def _wire(self, send_kind: OpKind, receive_kind: OpKind) -> Wire:
        return Wire(
            builder=self.builder,
            ports=self.workers,
            name=self.name,
            step=self.step,
            priority=self.priority,
            send_kind=send_kind,
            receive_kind=receive_kind,
        )

    def _work(self, kind: OpKind, bytes_per_s: int, after: Sequence[int]) -> int:
        return self.builder.op(
            f"{self.name}/{kind.label}",
            kind=kind,
            rank=self.servers.ports[self.server].rank,
            resource=self.servers.threads[self.server],
            work_ns=-(-self.size_bytes * NS_PER_S // bytes_per_s),
            size_bytes=self.size_bytes,
            after=after,
            priority=self.priority,
            step=self.step,
        )
