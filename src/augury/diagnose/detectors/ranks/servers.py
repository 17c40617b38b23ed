"""Detects parameter servers that are overloaded, or that hold uneven shares of the parameters."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind, ResourceKind, Role
from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    hosts_of,
    is_worth_reporting,
    predicted_finding,
    ratio_figure,
    share_figure,
)
from augury.passes.removals.even_servers import EVEN_SERVERS, FREE_SERVERS, server_load_ns

OVERLOAD, IMBALANCE = "server-overload", "server-imbalance"
_BUSY = 0.3
"""A server is overloaded if it works for at least this share of the step."""
_UNEVEN = 1.2
"""A server is overloaded against others if its load is this many times the mean."""


def _examine(run: ExaminedRun) -> list[Finding]:
    return [*_imbalance(run), *_overload(run)]


def _imbalance(run: ExaminedRun) -> list[Finding]:
    graph = run.graph
    servers = np.flatnonzero(graph.ranks.role == Role.SERVER)
    load = server_load_ns(graph)[servers]
    ratio = float(load.max() / max(1.0, load.mean()))
    if len(servers) < 2 or ratio < _UNEVEN:
        return []
    gain = run.predict((EVEN_SERVERS, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    worst = int(servers[int(np.argmax(load))])
    return [
        predicted_finding(
            gain,
            kind=IMBALANCE,
            title=f"server {worst} carries {ratio:.2f} times the mean load of the servers",
            where=Place(ranks=[worst], hosts=hosts_of(graph, [worst])),
            evidence=[ratio_figure("load against the mean server", ratio)],
            action="Split large parameters among the servers, or place them by size.",
        )
    ]


def _overload(run: ExaminedRun) -> list[Finding]:
    gain = run.predict((FREE_SERVERS, None))
    if gain is None or not is_worth_reporting(run, gain):
        return []
    graph, use = run.graph, run.timeline.utilization
    rows = np.flatnonzero(graph.resources.kind == ResourceKind.SERVER)
    window = np.maximum(1, use.busy_ns + use.waiting_ns + use.idle_ns)
    busy = float((use.busy_ns / window)[rows].max(initial=0.0))
    if busy < _BUSY:
        return []
    work = np.isin(graph.ops.kind, [OpKind.SERVER_COPY, OpKind.SERVER_SUM, OpKind.SERVER_UPDATE])
    servers = sorted({*graph.ops.rank[work].tolist()})
    return [
        predicted_finding(
            gain,
            kind=OVERLOAD,
            title="workers wait for the parameter servers to sum and update; the busiest one works"
            f" for {format_percent(100 * busy)} of the step",
            where=Place(ranks=servers, hosts=hosts_of(graph, servers)),
            evidence=[share_figure("busy share of the busiest server", busy)],
            action="Use more servers, or faster ones; the prediction is for servers that take no"
            " time.",
            at_most="medium",
        )
    ]


BUSY_SERVERS = Detector(
    kinds=(OVERLOAD, IMBALANCE),
    reason_against=lambda run: (
        ""
        if bool((run.graph.ranks.role == Role.SERVER).any())
        else "the run has no parameter server"
    ),
    examine=_examine,
)
