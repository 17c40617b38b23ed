"""Single messages, and their effect on each other."""

from __future__ import annotations

import pytest

from augury.build.collectives.ports import PortKind, Ports, open_ports
from augury.build.collectives.transfer import Move, NetworkPath
from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.replay.reference import simulate
from tests.build.scenes import FAST, one_host


def _scene(kind: PortKind, **options: int) -> tuple[NetworkPath, Ports, int]:
    builder = GraphBuilder()
    ranks = [builder.rank() for _ in range(3)]
    ports = open_ports(builder, one_host(3), ranks, kind=kind, **options)
    starts = [builder.op("start", rank=rank, work_ns=0) for rank in ranks]
    return NetworkPath(builder=builder, ports=ports, name="it"), ports, starts[0]


def _arrivals(wire: NetworkPath, ops: list[int]) -> list[int]:
    schedule = simulate(wire.builder.build())
    return schedule.end_ns[ops].tolist()


@pytest.mark.parametrize("kind", PortKind)
def test_one_message_takes_latency_overhead_and_bytes(kind):
    wire, ports, start = _scene(kind)
    ops = wire.move([Move(ports[0], ports[1], 1_000, (start,))])
    assert _arrivals(wire, ops) == [FAST.transfer_ns(1_000)]


@pytest.mark.parametrize("kind", PortKind)
def test_links_are_full_duplex(kind):
    wire, ports, start = _scene(kind)
    there = Move(ports[0], ports[1], 1_000, (start,))
    back = Move(ports[1], ports[0], 1_000, (start,))
    assert _arrivals(wire, wire.move([there, back])) == [FAST.transfer_ns(1_000)] * 2


def test_fifo_sends_follow_each_other_by_priority():
    wire, ports, start = _scene(PortKind.FIFO)
    later = wire.move([Move(ports[0], ports[1], 1_000, (start,))])
    urgent = NetworkPath(builder=wire.builder, ports=ports, name="urgent", priority=-1)
    sooner = urgent.move([Move(ports[0], ports[2], 1_000, (start,))])
    one = FAST.send_ns(1_000)
    assert _arrivals(wire, later + sooner) == [2 * one + 100, one + 100]


def test_fair_flows_share_either_end():
    for src, dst in (((0, 0), (1, 2)), ((0, 1), (2, 2))):
        wire, ports, start = _scene(PortKind.FAIR)
        ops = wire.move(
            [Move(ports[a], ports[b], 1_000, (start,)) for a, b in zip(src, dst, strict=True)]
        )
        assert _arrivals(wire, ops) == [2 * FAST.send_ns(1_000) + FAST.latency_ns] * 2


@pytest.mark.parametrize("kind", PortKind)
def test_reducing_received_data_takes_time(kind):
    wire, ports, start = _scene(kind, reduce_bytes_per_s=500_000_000)
    cost = ports.reduce_ns(1_000)
    assert cost == 2_000
    ops = wire.move([Move(ports[0], ports[1], 1_000, (start,), (), cost)])
    assert _arrivals(wire, ops) == [FAST.transfer_ns(1_000) + 2_000]


@pytest.mark.parametrize("kind", PortKind)
def test_each_operation_uses_its_own_kind_of_port(kind):
    wire, ports, start = _scene(kind)
    wire.move([Move(ports[0], ports[1], 10, (start,))])
    graph = wire.builder.build()
    kind_of = {
        OpKind(int(op)): ResourceKind(int(graph.resources.kind[resource]))
        for op, resource in zip(graph.ops.kind, graph.ops.resource, strict=True)
        if resource >= 0
    }
    assert kind_of == {OpKind.SEND: ResourceKind.LINK_OUT, OpKind.RECV: ResourceKind.LINK_IN}


def test_a_message_waits_for_both_ends():
    for kind in PortKind:
        wire, ports, start = _scene(kind)
        busy = wire.builder.op("busy", rank=1, work_ns=50_000, after=[start])
        ops = wire.move([Move(ports[0], ports[1], 1_000, (start,), (busy,))])
        assert _arrivals(wire, ops)[0] > 50_000
