"""The kernel against the reference on thousands of larger graphs, made to reach every short cut
of its look-ahead: streams in tandem and out of turn, wide pools, gangs in either, queues."""

from __future__ import annotations

import numpy as np
import pytest

from augury.core.graph.graph import Graph
from augury.replay import kernel, reference

from .traffic import traffic, varied

NUM_BATCHES = 8
BATCH = 125
VARIANTS = 3


def _assert_kernel_agrees(graph: Graph) -> None:
    expected, op_times = reference.simulate(graph), kernel.simulate(graph)
    np.testing.assert_array_equal(op_times.start_ns, expected.start_ns)
    np.testing.assert_array_equal(op_times.end_ns, expected.end_ns)
    np.testing.assert_array_equal(op_times.cause, expected.cause)


@pytest.mark.parametrize("batch", range(NUM_BATCHES))
def test_3_000_graphs_of_200_to_600_operations(batch: int):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        graph = traffic(seed)
        _assert_kernel_agrees(graph)
        for variant in range(1, VARIANTS):
            _assert_kernel_agrees(varied(graph, seed * VARIANTS + variant))


def test_that_traffic_is_what_it_is_said_to_be():
    graphs = [traffic(seed) for seed in range(40)]
    sizes = [graph.num_ops for graph in graphs]
    assert min(sizes) >= 200
    assert max(sizes) <= 720
    widths = [graph.resources.width[graph.ops.resource[graph.ops.gang >= 0]] for graph in graphs]
    assert any((width > 1).any() for width in widths), "gangs hold places of wide resources"
    complete = [reference.simulate(graph).is_complete for graph in graphs]
    assert sum(complete) > 30
    assert not all(complete), "some deadlock"
