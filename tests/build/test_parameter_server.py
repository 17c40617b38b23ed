from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.collectives.chunks import capped_chunks
from augury.build.collectives.parameter_server import open_servers, push_pull
from augury.build.collectives.placement import place
from augury.build.collectives.ports import PortKind, open_ports
from augury.build.collectives.scheme import CollectiveCall
from augury.core.cluster.cluster import Cluster
from augury.core.enums import OpKind, Role
from augury.core.graph.builder import GraphBuilder
from tests.build.scenes import FAST, SLOW, Played, contributions

NUM_SERVERS = 2
PARTITION_BYTES = 1_000


def _play(num_workers: int, size_bytes: int, kind: PortKind, priorities=(0,)) -> list[Played]:
    """One tensor for each of ``priorities``, all ready at once."""
    cluster = Cluster.of_hosts(num_hosts=num_workers, ranks_per_host=1, intra=FAST, inter=SLOW)
    builder = GraphBuilder()
    workers = [builder.rank() for _ in range(num_workers)]
    ranks = [builder.rank(role=Role.SERVER) for _ in range(NUM_SERVERS)]
    ports = open_ports(builder, cluster, workers, kind=kind)
    hosts = range(num_workers, num_workers + NUM_SERVERS)
    servers = open_servers(
        builder,
        open_ports(builder, cluster, ranks, kind=kind, hosts=hosts),
        partition_bytes=PARTITION_BYTES,
    )
    homes = place(
        [size_bytes] * len(priorities), num_servers=NUM_SERVERS, partition_bytes=PARTITION_BYTES
    )
    inputs = [builder.op("input", rank=rank, work_ns=5) for rank in workers]
    results = [
        push_pull(
            CollectiveCall(
                builder=builder,
                ports=ports,
                size_bytes=size_bytes,
                after=inputs,
                name=f"tensor{number}",
                priority=priority,
            ),
            servers=servers,
            home=home,
        )
        for number, (home, priority) in enumerate(zip(homes, priorities, strict=True))
    ]
    graph = builder.build()
    return [Played(graph, inputs, result) for result in results]


@given(
    num_workers=st.integers(1, 4),
    size_bytes=st.integers(0, 7_000),
    kind=st.sampled_from(PortKind),
)
@settings(max_examples=60, deadline=None)
def test_every_worker_receives_the_gradients_of_all_workers(num_workers, size_bytes, kind):
    (played,) = _play(num_workers, size_bytes, kind)
    needs = contributions(played.graph, played.inputs)
    everyone = (1 << num_workers) - 1
    assert [needs[result] for result in played.results] == [everyone] * num_workers
    updates = np.flatnonzero(played.graph.ops.kind == OpKind.SERVER_UPDATE)
    assert [needs[op] for op in updates] == [everyone] * len(updates)


@given(
    num_workers=st.integers(1, 4),
    size_bytes=st.integers(0, 7_000),
    kind=st.sampled_from(PortKind),
)
@settings(max_examples=60, deadline=None)
def test_bytes_are_conserved_in_every_partition(num_workers, size_bytes, kind):
    (played,) = _play(num_workers, size_bytes, kind)
    ops = played.graph.ops
    parts = sorted(capped_chunks(size_bytes, PARTITION_BYTES))
    for op_kind, times in (
        (OpKind.PUSH, num_workers),
        (OpKind.SERVER_COPY, 1),
        (OpKind.SERVER_SUM, num_workers - 1),
        (OpKind.SERVER_UPDATE, 1),
        (OpKind.PULL, num_workers),
    ):
        moved = sorted(ops.size_bytes[ops.kind == op_kind].tolist())
        assert moved == sorted(parts * times), op_kind


@pytest.mark.parametrize("kind", PortKind)
def test_updates_follow_sums_and_precede_pulls(kind):
    (played,) = _play(3, PARTITION_BYTES, kind)
    times, ops = played.op_times(), played.graph.ops

    def when(*kinds: OpKind) -> np.ndarray:
        return np.isin(ops.kind, kinds)

    summed = times.end_ns[when(OpKind.SERVER_COPY, OpKind.SERVER_SUM)].max()
    (update,) = np.flatnonzero(when(OpKind.SERVER_UPDATE))
    assert times.end_ns[when(OpKind.PUSH)].max() <= times.start_ns[update]
    assert summed <= times.start_ns[update]
    assert times.start_ns[when(OpKind.PULL)].min() >= times.end_ns[update]


def test_urgent_tensors_overtake_on_the_workers_port():
    patient, urgent = _play(2, 4 * PARTITION_BYTES, PortKind.FIFO, priorities=(9, 1))
    end_ns = patient.op_times().end_ns
    assert end_ns[urgent.results].max() < end_ns[patient.results].min()


def test_servers_share_the_work():
    (played,) = _play(2, 6 * PARTITION_BYTES, PortKind.FIFO)
    ops = played.graph.ops
    ranks = ops.rank[ops.kind == OpKind.SERVER_UPDATE]
    assert np.bincount(ranks, minlength=4).tolist() == [0, 0, 3, 3]
