"""Parameter servers: workers push gradients, servers sum and update, workers pull parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from augury.build.collectives.chunks import capped_chunks
from augury.build.collectives.ports import Ports
from augury.build.collectives.scheme import CollectiveCall
from augury.build.collectives.transfer import Move
from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.units import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Ports and threads of all servers, and the rates of one thread."""

    ports: Ports
    threads: tuple[int, ...]
    """For each server, the resource that stands for its threads."""
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


def push_pull(call: CollectiveCall, *, servers: Servers, home: Sequence[int]) -> list[int]:
    """Adds push, sum, update and pull of one tensor. ``home`` is the server of each partition. With
    ``servers`` and ``home`` bound by ``partial``, the function is a Collective."""
    parts = capped_chunks(call.size_bytes, servers.partition_bytes)
    pulled: list[list[int]] = [[] for _ in call.ports.members]
    for number, (server, part_bytes) in enumerate(zip(home, parts, strict=True)):
        part = call.stage(f"part{number}") if len(parts) > 1 else call
        partition = _Partition(replace(part, size_bytes=part_bytes), servers, server)
        for pulls, pull in zip(pulled, partition.push_pull(), strict=True):
            pulls.append(pull)
    wire = call.wire()
    return [wire.join(port, pulls) for port, pulls in zip(call.ports.members, pulled, strict=True)]


class _Partition:
    """Exchange of one partition between the workers, which are the members of ``call``, and the
    server of the partition."""

    def __init__(self, call: CollectiveCall, servers: Servers, server: int) -> None:
        self.call = call
        self.servers = servers
        self.port = servers.ports[server]
        self.threads = servers.threads[server]

    def push_pull(self) -> list[int]:
        return self._pull(self._update(self._push()))

    def _push(self) -> list[int]:
        call = self.call
        moves = [
            Move(port, self.port, call.size_bytes, (before,))
            for port, before in zip(call.ports.members, call.after, strict=True)
        ]
        return call.wire(send_kind=OpKind.PUSH).move(moves, "push")

    def _update(self, arrived: Sequence[int]) -> int:
        """Adds the work of the server: the first gradient to arrive is copied, the others are added
        to it, and the sum updates the parameters. Only replay knows which gradient arrives first.
        The choice affects only the cost of one operation, so the first worker's is copied."""
        rates = self.servers
        summed = []
        for number, arrival in enumerate(arrived):
            kind, rate = OpKind.SERVER_SUM, rates.sum_bytes_per_s
            if number == 0:
                kind, rate = OpKind.SERVER_COPY, rates.copy_bytes_per_s
            summed.append(self._work(kind, rate, (arrival,)))
        return self._work(OpKind.SERVER_UPDATE, rates.update_bytes_per_s, summed)

    def _pull(self, updated: int) -> list[int]:
        call = self.call
        moves = [Move(self.port, port, call.size_bytes, (updated,)) for port in call.ports.members]
        return call.wire(receive_kind=OpKind.PULL).move(moves, "pull")

    def _work(self, kind: OpKind, bytes_per_s: int, after: Sequence[int]) -> int:
        return self.call.stage(kind.label).op(
            kind,
            rank=self.port.rank,
            resource=self.threads,
            work_ns=-(-self.call.size_bytes * NS_PER_S // bytes_per_s),
            after=after,
        )
