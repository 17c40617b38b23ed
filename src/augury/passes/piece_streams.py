"""Pieces of a plan travel in a process group of their own: others do not queue among them."""

from __future__ import annotations

import numpy as np

from augury.core.enums import are_communication
from augury.core.graph.graph import Graph, Interference, Ops, Resources


def others_apart(graph: Graph) -> Graph:
    """Collectives that carry no gradients, such as broadcasts of buffers, on streams of their own;
    these are like the streams of gradients, and interfere with compute as they do."""
    ops, resources, rules = graph.ops, graph.resources, graph.interference
    carrying = np.zeros(graph.num_ops, dtype=bool)
    carrying[graph.gradients.carried_by] = True
    others = are_communication(ops.kind) & ~carrying
    others &= np.isin(ops.resource, ops.resource[carrying])
    streams = np.unique(ops.resource[others])
    if not len(streams):
        return graph
    number = np.arange(len(resources))
    number[streams] = len(resources) + np.arange(len(streams))
    resource = ops.resource.copy()
    resource[others] = number[resource[others]]
    copied = np.isin(rules.victim, streams) | np.isin(rules.aggressor, streams)
    return graph.evolve(
        ops=Ops(**(dict(ops.columns()) | {"resource": resource})),
        resources=Resources(
            **{
                name: np.concatenate([values, values[streams]])
                for name, values in resources.columns()
            }
        ),
        interference=Interference(
            victim=np.concatenate([rules.victim, number[rules.victim[copied]]]),
            aggressor=np.concatenate([rules.aggressor, number[rules.aggressor[copied]]]),
            rate=np.concatenate([rules.rate, rules.rate[copied]]),
        ),
    )
