"""Pass that expands all-reduces into sends and receives on links.

The ratio of the recorded time of an all-reduce to the time of its sends on the recorded links (busy
processors, stalled links) is kept as a factor on its sends, except for stalls of a removed link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import I4
from augury.core.enums import Discipline, OpKind, ResourceKind
from augury.core.errors import InputError, UsageError
from augury.core.graph.graph import NONE, Graph
from augury.costs.collective_steps import ALGORITHMS, Send
from augury.costs.links import Links
from augury.passes.graph_edit import GraphEdit
from augury.passes.processor_time import keep_processor_time, rate_after
from augury.passes.protocol import Changed, ErrorModel, Scene, changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Use of links by collectives."""

    algorithm: str = "ring"
    ring_order: tuple[int, ...] | None = None
    """Ranks in the order of the ring; None means in the order of their numbers."""
    half_duplex: bool = False
    """Whether a rank either sends or receives at a time, not both."""


RECORDED = Topology()


@dataclass(frozen=True, slots=True)
class ExpandCollectives:
    """Replaces all-reduces by their sends and receives, on the links of the scene. The parameter is
    None where collectives use the links as recorded."""

    name = "expand-collectives"
    plan_section = None
    advice = "Configure the communication library for this algorithm and ring order."

    def applies(self, scene: Scene) -> list[str]:
        if scene.is_expanded:
            return ["collectives are expanded already"]
        return [] if scene.links is not None else ["links between ranks are not known"]

    def apply(self, scene: Scene, parameters: Topology | None = None) -> Changed:
        for reason in self.applies(scene):
            raise InputError(reason, remedy="give a run recorded with `augury run --wire`")
        recorded, links = scene.recorded_links, scene.links
        assert recorded is not None
        assert links is not None
        topology = parameters or RECORDED
        base = _Expansion(scene.graph, recorded, recorded, RECORDED)
        graph, new_op_of = base.graph(), base.new_op_of()
        if links is not recorded or topology != RECORDED:
            expansion = _Expansion(scene.graph, recorded, links, topology)
            # The expansion has moved interference to its links, with the same processor time.
            whole = (ResourceKind.COMMUNICATION,)
            graph = keep_processor_time(graph, expansion.graph(), of=whole)
            new_op_of = expansion.new_op_of()
        return changed(scene, replace(scene, graph=graph, is_expanded=True), new_op_of)

    def error_model(self, parameters: Topology | None = None) -> ErrorModel:
        return ErrorModel(0.0 if parameters is None else 0.03)


EXPAND_COLLECTIVES = ExpandCollectives()


@dataclass(slots=True)
class _Ports:
    sends_on: int
    receives_on: int


@dataclass(slots=True)
class _Sends:
    """Sends of an all-reduce of one size: as recorded and as replayed, and the time of the former
    on idle links."""

    recorded: list[Send]
    sends: list[Send]
    recorded_ns: float


class _Expansion:
    def __init__(self, graph: Graph, recorded: Links, links: Links, topology: Topology) -> None:
        self._graph, self._recorded, self._links = graph, recorded, links
        self._topology = topology
        self._edit = GraphEdit(graph)
        self._plans: dict[tuple[int, tuple[int, ...]], _Sends] = {}
        self._ports: dict[int, _Ports] = {}
        self._running: dict[int, list[int]] = defaultdict(list)
        self._whole_ns: dict[int, int] = defaultdict(int)
        """Total time of each rank's collectives before expansion; ``_busy_ns`` that of its links
        after it."""
        self._busy_ns: dict[int, int] = defaultdict(int)
        if topology.algorithm not in ALGORITHMS:
            raise UsageError(
                f"there is no algorithm {topology.algorithm!r}",
                remedy=f"choose one of {', '.join(ALGORITHMS)}",
            )

    def graph(self) -> Graph:
        gangs = self._gangs()
        ranks = {int(self._graph.ops.rank[op]) for members in gangs for op in members}
        self._ports = self._open_ports(sorted(ranks))
        for members in gangs:
            self._expand(members)
        self._move_interference()
        return self._edit.graph()

    def new_op_of(self) -> I4:
        return self._edit.new_op_of()

    def _gangs(self) -> list[list[int]]:
        """Returns the all-reduces of two or more ranks, in the order of their calls."""
        ops = self._graph.ops
        rows = np.flatnonzero((ops.kind == OpKind.ALL_REDUCE) & (ops.gang != NONE))
        of_gang: dict[int, list[int]] = defaultdict(list)
        for row in rows.tolist():
            of_gang[int(ops.gang[row])].append(row)
        gangs = [sorted(own, key=lambda op: int(ops.rank[op])) for own in of_gang.values()]
        return sorted((own for own in gangs if len(own) > 1), key=min)

    def _expand(self, members: list[int]) -> None:
        graph, ops, edit = self._graph, self._graph.ops, self._edit
        ranks = tuple(int(ops.rank[op]) for op in members)
        size_bytes, step = int(ops.size_bytes[members[0]]), int(ops.step[members[0]])
        order = self._ordered(ranks)
        plan = self._plan(size_bytes, ranks)
        factors = self._factors(plan, ranks, int(ops.work_ns[members[0]]))
        name = graph.op_name(members[0])
        member_of = dict(zip(ranks, members, strict=True))
        begun: dict[int, int] = {}
        for rank in order:
            op = member_of[rank]
            before = graph.predecessors.of(op).tolist()
            begun[rank] = edit.op(
                f"{name} begins",
                kind=OpKind.MARK,
                rank=rank,
                resource=NONE,
                work_ns=0,
                step=step,
                after=[*before, *self._free_thread(int(ops.resource[op]))],
            )
        taken = self._add_sends(plan.sends, order, begun, factors, name, step)
        for rank in order:
            op = member_of[rank]
            own = [t for t, send in zip(taken, plan.sends, strict=True) if order[send.dst] == rank]
            ended = edit.op(
                f"{name} ended",
                kind=OpKind.MARK,
                rank=rank,
                resource=NONE,
                work_ns=0,
                step=step,
                after=own[-2:] or [begun[rank]],
            )
            for after in graph.edges.of(op).tolist():
                edit.edge(ended, after)
            self._running[int(ops.resource[op])].append(ended)
            self._whole_ns[rank] += int(ops.work_ns[op])
            edit.remove(op)

    def _add_sends(
        self,
        sends: Sequence[Send],
        order: Sequence[int],
        begun: dict[int, int],
        factors: tuple[float, float],
        name: str,
        step: int,
    ) -> list[int]:
        taken: list[int] = []
        half = self._topology.half_duplex
        stretch, shrink = factors
        for number, send in enumerate(sends):
            src, dst = order[send.src], order[send.dst]
            way_ns = self._links.send_ns(send, order) * stretch * shrink
            sent = self._edit.op(
                f"{name}/{number}",
                kind=OpKind.SEND,
                rank=src,
                resource=self._ports[src].sends_on,
                work_ns=max(1, round(way_ns)),
                size_bytes=send.size_bytes,
                step=step,
                after=[
                    *([taken[i] for i in send.has] or [begun[src]]),
                    *([taken[i] for i in send.room] or [begun[dst]]),
                ],
            )
            take_ns = self._links.take_ns(send, order) * shrink
            take_ns += way_ns if half else 0.0
            taken.append(
                self._edit.op(
                    f"{name}/{number}",
                    kind=OpKind.RECV,
                    rank=dst,
                    resource=self._ports[dst].receives_on,
                    work_ns=max(1, round(take_ns)),
                    size_bytes=send.size_bytes,
                    step=step,
                    after=[sent],
                )
            )
            self._busy_ns[src] += round(way_ns)
            self._busy_ns[dst] += round(take_ns)
        return taken

    def _ordered(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        wanted = self._topology.ring_order
        if wanted is None or set(ranks) != set(wanted):
            if wanted is not None and len(ranks) == self._graph.num_ranks:
                raise UsageError(
                    f"{', '.join(map(str, wanted))} is no order of the ranks",
                    remedy=f"name each of 0 to {len(ranks) - 1} once",
                )
            return ranks
        return wanted

    def _plan(self, size_bytes: int, ranks: tuple[int, ...]) -> _Sends:
        key = size_bytes, ranks
        if key not in self._plans:
            was = ALGORITHMS[RECORDED.algorithm](size_bytes, len(ranks))
            now = ALGORITHMS[self._topology.algorithm](size_bytes, len(ranks))
            self._plans[key] = _Sends(was, now, self._recorded.alone_ns(was, ranks))
        return self._plans[key]

    def _factors(self, plan: _Sends, ranks: tuple[int, ...], work_ns: int) -> tuple[float, float]:
        """Returns factors on sends and on everything that reproduce the recorded time. Longer sends
        delay other collectives, as they did in the run: a link carries one message at a time."""
        if work_ns < plan.recorded_ns:
            return 1.0, work_ns / plan.recorded_ns
        stretch = self._recorded.stretch_for(plan.recorded, ranks, work_ns) / self._recorded.stall
        return max(1.0, stretch * self._links.stall), 1.0

    def _free_thread(self, stream: int) -> list[int]:
        """Returns the collective that must end before the next one gets a thread of the library;
        none while threads are free."""
        if stream == NONE:
            return []
        width = int(self._graph.resources.width[stream])
        running = self._running[stream]
        return running[-width:][:1] if len(running) >= width else []

    def _open_ports(self, ranks: Sequence[int]) -> dict[int, _Ports]:
        """Adds the links of ranks, in the same order for all topologies, so that a link always has
        the same index."""
        half = self._topology.half_duplex
        ports: dict[int, _Ports] = {}
        for rank in ranks:
            out, into = (
                self._edit.named_resource(
                    name, kind=kind, rank=rank, width=1, discipline=Discipline.FIFO
                )
                for name, kind in (("out", ResourceKind.LINK_OUT), ("in", ResourceKind.LINK_IN))
            )
            ports[rank] = _Ports(out, out if half else into)
        return ports

    def _move_interference(self) -> None:
        """Moves interference between communication and compute of a rank to its links. They take
        the same processor time in total, however long they are busy."""
        rules, resources = self._graph.interference, self._graph.resources
        seen: set[tuple[int, int]] = set()
        for victim, aggressor, rate in zip(
            rules.victim.tolist(), rules.aggressor.tolist(), rules.rate.tolist(), strict=True
        ):
            for link in self._links_of(aggressor):
                rank = int(resources.rank[aggressor])
                whole_ns, busy_ns = self._whole_ns[rank], max(1, self._busy_ns[rank])
                kept = rate_after(self._graph, rank, rate, whole_ns, busy_ns)
                self._interfere(seen, victim, link, kept)
            for link in self._links_of(victim):
                self._interfere(seen, link, aggressor, rate)

    def _interfere(
        self, seen: set[tuple[int, int]], victim: int, aggressor: int, rate: int
    ) -> None:
        if (victim, aggressor) not in seen:
            seen.add((victim, aggressor))
            self._edit.interfere((victim, aggressor, rate))

    def _links_of(self, resource: int) -> list[int]:
        """Returns the links of the rank that a communication stream belongs to."""
        resources = self._graph.resources
        ports = self._ports.get(int(resources.rank[resource]))
        if ports is None or resources.kind[resource] != ResourceKind.COMMUNICATION:
            return []
        return list(dict.fromkeys((ports.sends_on, ports.receives_on)))
