"""Detects links between ranks that are slower than others, and retransmissions on them."""

from __future__ import annotations

import shlex

import numpy as np

from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.units import format_bytes
from augury.costs.links import Links
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    hosts_of,
    is_worth_reporting,
    predicted_finding,
    ratio_figure,
)
from augury.diagnose.phrases import ranks_and_hosts
from augury.passes.bandwidth import LINK_BANDWIDTH, LinkRate, Rate
from augury.passes.expand_collectives import EXPAND_COLLECTIVES

SLOW_LINK = "slow-link"
_SLOW = 1.3
"""A link is slow if its time per byte is this many times that of a typical link."""


def _examine(run: ExaminedRun) -> list[Finding]:
    fine = run.fine
    assert not isinstance(fine, str)
    found = slowest_link(fine.links)
    if found is None:
        return []
    rank, sends, receives, ratio, rate = found
    change = LinkRate(rank=rank, rate=Rate(factor=ratio), sends=sends, receives=receives)
    before = run.replay(fine.expanded)
    gain = run.predict((LINK_BANDWIDTH, change), (EXPAND_COLLECTIVES, None), of=fine.scene)
    if gain is None:
        return []
    gain = run.gain(gain.step_ns, gain.interval_ns, model_error=0.02, baseline_ns=before.step_ns)
    if not is_worth_reporting(run, gain):
        return []
    way = "" if sends and receives else " outwards" if sends else " inwards"
    graph = run.graph
    return [
        predicted_finding(
            gain,
            kind=SLOW_LINK,
            title=f"the link of {ranks_and_hosts(graph, [rank])}{way} carries"
            f" {format_bytes(rate)}/s, {ratio:.1f} times less than a typical link",
            where=Place(ranks=[rank], hosts=hosts_of(graph, [rank])),
            evidence=[
                ratio_figure("time per byte against a typical link", ratio),
                Figure(name="bandwidth of the link", value=round(rate), unit="bytes/s"),
                Figure(name="bandwidth of a typical link", value=round(rate * ratio),
                       unit="bytes/s"),
            ],
            action="Check the cable, the port and its speed, and other traffic of that host.",
            command=f"augury wire {shlex.quote(str(run.opened.path))}",
        )
    ]  # fmt: skip


def slowest_link(links: Links) -> tuple[int, bool, bool, float, float] | None:
    """Returns the rank with the slowest link, whether it sends and receives slowly, by what factor,
    and its bandwidth; None if no link is slow. A link is compared with the fastest way in which
    both of its ends communicate with others."""
    ns_per_byte = links.ns_per_byte
    num = links.num_ranks
    off = ~np.eye(num, dtype=bool)
    typical = float(np.median(ns_per_byte[off]))
    if num == 2:
        typical = float(ns_per_byte[off].min())
    sent = np.array([ns_per_byte[r][off[r]].min() for r in range(num)]) / typical
    received = np.array([ns_per_byte[:, r][off[r]].min() for r in range(num)]) / typical
    worst = np.maximum(sent, received)
    rank = int(np.argmax(worst))
    if worst[rank] < _SLOW:
        return None
    sends, receives = bool(sent[rank] >= _SLOW), bool(received[rank] >= _SLOW)
    ratio = float(max(sent[rank] if sends else 0.0, received[rank] if receives else 0.0))
    return rank, sends, receives, ratio, 1e9 / (typical * ratio)


def _reason(run: ExaminedRun) -> str:
    if run.graph.num_ranks < 2:
        return "the run has one rank"
    return run.fine if isinstance(run.fine, str) else ""


SLOW_LINKS = Detector(kinds=(SLOW_LINK,), reason_against=_reason, examine=_examine)
