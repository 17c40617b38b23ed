"""Detects links between ranks that are slower than others."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

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
from augury.passes.expand_collectives import EXPAND_COLLECTIVES
from augury.passes.removals.level_links import LEVEL_LINKS

SLOW_LINK = "slow-link"
_SLOW = 1.25
"""A link is slow if its time per byte is this many times that of a typical link."""


@dataclass(frozen=True, slots=True)
class SlowPath:
    """The slowest connection of ranks: of one rank with all others, or from one to the other of
    two ranks. A rank that is None means all."""

    src: int | None
    dst: int | None
    ratio: float
    """Time per byte over that of a typical link."""
    rate_bytes_per_s: float

    @property
    def ranks(self) -> list[int]:
        return [rank for rank in (self.src, self.dst) if rank is not None]


def _examine(run: ExaminedRun) -> list[Finding]:
    fine = run.fine
    assert not isinstance(fine, str)
    found = slowest_path(fine.links)
    if found is None:
        return []
    baseline_ns = run.replay(fine.expanded).step_ns
    gain = run.predict(
        (LEVEL_LINKS, None), (EXPAND_COLLECTIVES, None), of=fine.scene, baseline_ns=baseline_ns
    )
    if gain is None or not is_worth_reporting(run, gain):
        return []
    ratio, rate, graph = found.ratio, found.rate_bytes_per_s, run.graph
    return [
        predicted_finding(
            gain,
            kind=SLOW_LINK,
            title=f"the link {_words(found)} carries {format_bytes(rate)}/s,"
            f" {ratio:.1f} times less than a typical link",
            where=Place(ranks=sorted({*found.ranks}), hosts=hosts_of(graph, found.ranks)),
            evidence=[
                ratio_figure("time per byte against a typical link", ratio),
                Figure(name="bandwidth of the link", value=round(rate), unit="bytes/s"),
                Figure(
                    name="bandwidth of a typical link", value=round(rate * ratio), unit="bytes/s"
                ),
            ],
            action="Check the cable, the port and its speed, and other traffic of these hosts.",
            command=f"augury wire {shlex.quote(str(run.opened.path))}",
        )
    ]


def _words(path: SlowPath) -> str:
    if path.dst is None:
        return f"of rank {path.src} outwards"
    if path.src is None:
        return f"of rank {path.dst} inwards"
    if path.src == path.dst:
        return f"of rank {path.src}"
    return f"from rank {path.src} to rank {path.dst}"


def slowest_path(links: Links) -> SlowPath | None:
    """Returns the slowest connection; None if no link is slow. With two ranks the other direction
    is the typical link. A rank is slow if even its fastest connection is."""
    ns_per_byte, num = links.ns_per_byte, links.num_ranks
    off = ~np.eye(num, dtype=bool)
    if num == 2:
        typical = float(ns_per_byte[off].min())
        src = int(ns_per_byte[1, 0] > ns_per_byte[0, 1])
        ratio = float(ns_per_byte[off].max()) / typical
        found = SlowPath(src, 1 - src, ratio, 1e9 / (typical * ratio))
        return found if ratio >= _SLOW else None
    sent = np.array([ns_per_byte[r][off[r]].min() for r in range(num)])
    received = np.array([ns_per_byte[:, r][off[r]].min() for r in range(num)])
    # Most pairs of few ranks include the slow one, but most ranks have a fast connection.
    typical = float(np.sort(np.minimum(sent, received))[(num - 1) // 2])
    sent, received = sent / typical, received / typical
    worst = np.maximum(sent, received)
    rank, ratio = int(np.argmax(worst)), float(worst.max())
    if ratio < _SLOW:
        return None
    src_rank = rank if sent[rank] >= _SLOW else None
    dst_rank = rank if received[rank] >= _SLOW else None
    return SlowPath(src_rank, dst_rank, ratio, 1e9 / (typical * ratio))


def without_wire(run: ExaminedRun) -> str:
    if run.graph.num_ranks < 2:
        return "the run has one rank"
    hosts = set(run.graph.ranks.host[: run.graph.num_ranks].tolist())
    if len(hosts) < 2:
        return "all ranks are on one host: no link connects them"
    return run.fine if isinstance(run.fine, str) else ""


SLOW_LINKS = Detector(kinds=(SLOW_LINK,), reason_against=without_wire, examine=_examine)
