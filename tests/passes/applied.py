"""Passes applied to a graph and its costs; every application is checked against the protocol."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from augury.core.graph.graph import Graph
from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem
from augury.costs.collective_costs import Costs
from augury.costs.links import Links
from augury.passes.bandwidth import BANDWIDTH, Rate
from augury.passes.buckets import BUCKETS, BucketCaps
from augury.passes.communication_order import COMMUNICATION_ORDER
from augury.passes.compute_scale import COMPUTE_SCALE, ComputeFactor
from augury.passes.expand_collectives import EXPAND_COLLECTIVES, Topology
from augury.passes.latency import LATENCY, LatencyChange
from augury.passes.no_stragglers import NO_STRAGGLERS
from augury.passes.perfect_overlap import PERFECT_OVERLAP
from augury.passes.pieces.piece_exchange import OrderedPieces
from augury.passes.protocol import Changed, Pass, Scene
from augury.passes.ranks import CHANGE_RANKS, NumRanks


def applied(one: Pass[Any], scene: Scene, parameters: Any) -> Changed:
    found = one.apply(scene, parameters)
    assert one.applies(scene) == []
    check_change(scene, found)
    assert pickle.loads(pickle.dumps((one, parameters)))[0] == one
    return found


def check_change(old: Scene, found: Changed) -> None:
    new = found.scene.graph
    assert len(found.new_op_of) == old.graph.num_ops
    kept = found.new_op_of[found.new_op_of >= 0]
    assert (np.diff(kept) > 0).all()
    assert kept.max(initial=-1) < new.num_ops
    assert (np.diff(found.touched) > 0).all()
    assert not len(found.touched) or 0 <= found.touched[0] <= found.touched[-1] < new.num_ops
    added = np.setdiff1d(np.arange(new.num_ops), kept)
    assert np.isin(added, found.touched).all()
    assert len(found.memory_bytes) == len(new.ranks)


def _graph_and_costs(one: Pass[Any], graph: Graph, costs: Costs, parameters: Any) -> Any:
    found = applied(one, Scene(graph=graph, costs=costs), parameters).scene
    return found.graph, found.costs


def change_bandwidth(graph: Graph, costs: Costs, factor: float) -> tuple[Graph, Costs]:
    return _graph_and_costs(BANDWIDTH, graph, costs, Rate(factor=factor))


def change_latency(graph: Graph, costs: Costs, **change: Any) -> tuple[Graph, Costs]:
    return _graph_and_costs(LATENCY, graph, costs, LatencyChange(**change))


def change_ranks(graph: Graph, costs: Costs, num_ranks: int) -> tuple[Graph, Costs]:
    return _graph_and_costs(CHANGE_RANKS, graph, costs, NumRanks(num_ranks))


def change_buckets(graph: Graph, costs: Costs, caps_bytes: Sequence[int]) -> Graph:
    return _graph_and_costs(BUCKETS, graph, costs, BucketCaps(tuple(caps_bytes)))[0]


def scale_compute(graph: Graph, factor: float, ranks: Iterable[int] | None = None) -> Graph:
    chosen = None if ranks is None else tuple(ranks)
    return _graph_and_costs(COMPUTE_SCALE, graph, {}, ComputeFactor(factor=factor, ranks=chosen))[0]


def without_stragglers(graph: Graph) -> Graph:
    return _graph_and_costs(NO_STRAGGLERS, graph, {}, None)[0]


def perfect_overlap(graph: Graph) -> Graph:
    return _graph_and_costs(PERFECT_OVERLAP, graph, {}, None)[0]


def apply_order(
    graph: Graph, costs: Costs, problem: Problem, order: Order, **options: Any
) -> Graph:
    pieces = OrderedPieces(problem=problem, order=order, costs=costs, **options)
    return _graph_and_costs(COMMUNICATION_ORDER, graph, costs, pieces)[0]


def expand(
    graph: Graph, recorded: Links, *, links: Links | None = None, topology: Topology | None = None
) -> Graph:
    scene = Scene(graph=graph, costs={}, links=links or recorded, recorded_links=recorded)
    return applied(EXPAND_COLLECTIVES, scene, topology).scene.graph
