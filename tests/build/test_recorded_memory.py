"""Memory of recorded graphs: from which operation to which each rank holds what."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.graph import NONE, Graph
from augury.predict.opened_run import open_source
from augury.replay.run import replay

GOLDEN = Path(__file__).parents[1] / "golden" / "runs"


def rows_of(graph: Graph, kind: MemoryKind, rank: int = 0) -> list[int]:
    own = (graph.buffers.kind == kind) & (graph.buffers.rank == rank)
    found: list[int] = np.flatnonzero(own).tolist()
    return found


def layer_of(graph: Graph, number: int) -> str:
    return graph.strings[number] if number != NONE else ""


def test_activations_end_with_the_backward_of_their_layer() -> None:
    graph = open_source(GOLDEN / "conv-2").graph
    ops, buffers = graph.ops, graph.buffers
    rows = rows_of(graph, MemoryKind.ACTIVATION)
    assert rows
    for row in rows:
        taken, given = int(buffers.taken_by[row]), int(buffers.given_by[row])
        assert ops.kind[taken] == OpKind.FORWARD
        assert ops.step[taken] == ops.step[given]
        layer = layer_of(graph, int(buffers.layer[row]))
        same = (ops.rank == 0) & (ops.step == ops.step[given]) & (ops.kind == OpKind.BACKWARD)
        if layer:
            same &= ops.layer == buffers.layer[row]
        assert given == np.flatnonzero(same).max()
    steps = {int(ops.step[buffers.taken_by[row]]) for row in rows}
    assert len(steps) == graph.num_steps


def test_gradients_live_from_the_operation_that_makes_them_to_the_next_clearing() -> None:
    graph = open_source(GOLDEN / "conv-2").graph
    buffers, gradients = graph.buffers, graph.gradients
    own = gradients.rank == 0
    made = {
        (graph.strings[int(name)], int(op))
        for name, op in zip(gradients.name[own], gradients.made_by[own], strict=True)
    }
    rows = rows_of(graph, MemoryKind.GRADIENT)
    taken = {
        (layer_of(graph, int(buffers.layer[row])), int(buffers.taken_by[row]))
        for row in rows
        if buffers.taken_by[row] != NONE
    }
    assert taken == made
    for row in rows:
        given = int(buffers.given_by[row])
        if given != NONE:
            assert graph.op_name(given).startswith("Optimizer.zero_grad#")
            assert given > buffers.taken_by[row]


def test_each_pass_of_a_step_has_its_activations_and_adds_its_gradients() -> None:
    graph = open_source(GOLDEN / "accumulation-2").graph
    buffers, ops = graph.buffers, graph.ops
    lives = defaultdict(list)
    for row in rows_of(graph, MemoryKind.ACTIVATION):
        taken = int(buffers.taken_by[row])
        lives[int(buffers.layer[row]), int(ops.step[taken])].append(
            (taken, int(buffers.given_by[row]))
        )
    for spans in lives.values():
        assert len(spans) == 3
        assert all(end < begin for (_, end), (begin, _) in pairwise(spans))
    added = [
        row
        for row in rows_of(graph, MemoryKind.GRADIENT)
        if buffers.taken_by[row] == buffers.given_by[row]
    ]
    # Two of the three passes of each step find gradients to add to.
    assert len(added) == 2 * (graph.gradients.rank == 0).sum()


def test_buckets_count_unless_gradients_are_views_into_them() -> None:
    opened = open_source(GOLDEN / "buckets-2")
    trace = opened.trace
    size_bytes = int(trace.gradients.size_bytes[trace.gradients.rank == 0].sum())

    def buckets(has_views: bool | None) -> tuple[int, int]:
        ranks = [
            msgspec.structs.replace(facts, gradient_as_bucket_view=has_views)
            for facts in trace.ranks
        ]
        graph = build_recorded(trace.evolve(ranks=ranks))
        rows = rows_of(graph, MemoryKind.COMMUNICATION)
        held = [
            row
            for row in rows_of(graph, MemoryKind.GRADIENT)
            if graph.buffers.taken_by[row] == graph.buffers.given_by[row] == NONE
        ]
        return int(graph.buffers.size_bytes[rows].sum()), len(held)

    num_gradients = int((trace.gradients.rank == 0).sum())
    assert buckets(False) == (size_bytes, 0)
    assert buckets(None) == (0, 0)
    assert buckets(True) == (0, num_gradients)


@pytest.mark.parametrize("run", ["conv-2", "buckets-3", "accumulation-2", "sharded-2"])
def test_the_peak_is_less_than_the_sum_of_all_that_is_ever_held(run: str) -> None:
    graph = open_source(GOLDEN / run).graph
    for peak in replay(graph).peak_memory:
        own = graph.buffers.rank == peak.rank
        held = own & (graph.buffers.taken_by == NONE) & (graph.buffers.given_by == NONE)
        assert peak.size_bytes >= graph.buffers.size_bytes[held].sum()
        assert peak.size_bytes < graph.buffers.size_bytes[own].sum()
