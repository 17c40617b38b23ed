"""Small graphs whose causes are known exactly, and short ways to ask about their diagnosis."""

from __future__ import annotations

from typing import Any

import augury
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.results.diagnosis import Diagnosis, Finding

FAST = {"bandwidth": "10000Gbit/s", "latency": "1ns"}


def synthetic(**options: Any) -> Graph:
    """Returns a graph whose communication takes next to no time, unless options say otherwise."""
    return augury.synth(**({"ranks": 4, "steps": 6} | FAST | options))


def diagnosis(graph: Graph) -> Diagnosis:
    return augury.open(graph).diagnose().result


def finding(found: Diagnosis, kind: str) -> Finding:
    return next(one for one in found.findings if one.kind == kind)


def kinds(found: Diagnosis) -> list[str]:
    return [one.kind for one in found.findings]


def part_names(found: Diagnosis) -> list[str]:
    return [part.name for part in found.waterfall]


def two_ranks(steps: list[dict[str, list[int]]]) -> Graph:
    """Returns a run of two ranks, or of as many as there are times. Each step has, by kind of work,
    its time on each rank in us."""
    builder = GraphBuilder()
    num_ranks = len(next(iter(steps[0].values())))
    ranks = [builder.rank(host=f"node{i}") for i in range(num_ranks)]
    threads = [builder.resource("main thread", rank=rank) for rank in ranks]
    streams = [builder.resource("communication", rank=rank) for rank in ranks]
    before: list[list[int]] = [[] for _ in ranks]
    for number, works in enumerate(steps):
        gang = builder.gang()
        reduced = []
        for i, rank in enumerate(ranks):
            for kind, times in works.items():
                op = builder.op(
                    kind,
                    kind=OpKind[kind.upper()],
                    rank=rank,
                    resource=threads[i],
                    work_ns=1000 * times[i],
                    step=number,
                    after=before[i],
                )
                before[i] = [op]
            reduced.append(
                builder.op(
                    "reduce",
                    kind=OpKind.ALL_REDUCE,
                    rank=rank,
                    resource=streams[i],
                    work_ns=10_000,
                    step=number,
                    gang=gang,
                    after=before[i],
                )
            )
        for i, rank in enumerate(ranks):
            update = builder.op(
                "update",
                kind=OpKind.UPDATE,
                rank=rank,
                resource=threads[i],
                work_ns=100_000,
                step=number,
                after=[reduced[i]],
            )
            before[i] = [update]
    return builder.build()


MODEL = {"forward": [300, 300], "backward": [600, 600]}
