"""Interface of communication schemes: one call of a collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from augury.build.collectives.ports import Ports
from augury.build.collectives.transfer import NetworkPath
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE


@dataclass(frozen=True, kw_only=True)
class CollectiveCall:
    """One communication of the members of ``ports``. ``after`` has, for each member in order, the
    operation that its contribution waits for."""

    builder: GraphBuilder
    ports: Ports
    size_bytes: int
    after: Sequence[int]
    name: str
    step: int = 0
    priority: int = 0

    def stage(self, name: str) -> CollectiveCall:
        """Returns a part of the call with a name of its own."""
        return replace(self, name=f"{self.name}/{name}")

    def among(self, positions: Sequence[int], *, size_bytes: int) -> CollectiveCall:
        """Returns the same call by some of the members."""
        return replace(
            self,
            ports=self.ports.group(positions),
            size_bytes=size_bytes,
            after=[self.after[i] for i in positions],
        )

    def wire(
        self, *, send_kind: OpKind = OpKind.SEND, receive_kind: OpKind = OpKind.RECV
    ) -> NetworkPath:
        return NetworkPath(
            builder=self.builder,
            ports=self.ports,
            name=self.name,
            step=self.step,
            priority=self.priority,
            send_kind=send_kind,
            receive_kind=receive_kind,
        )

    def op(
        self,
        kind: OpKind,
        *,
        rank: int,
        resource: int,
        work_ns: int,
        after: Sequence[int],
        gang: int = NONE,
    ) -> int:
        """Adds an operation on all of the bytes."""
        return self.builder.op(
            self.name,
            kind=kind,
            rank=rank,
            resource=resource,
            work_ns=work_ns,
            size_bytes=self.size_bytes,
            after=after,
            priority=self.priority,
            gang=gang,
            step=self.step,
        )


Collective = Callable[[CollectiveCall], list[int]]
"""Function that adds a communication and returns, for each member, the operation after which it has
the result."""
