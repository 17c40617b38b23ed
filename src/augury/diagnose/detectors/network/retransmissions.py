"""Detects links on which TCP retransmits."""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from augury.core.results.diagnosis import Finding, Place
from augury.core.units import format_percent
from augury.core.wire import Wire
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.detectors.network.slow_links import without_wire
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import count_figure, hosts_of, share_figure
from augury.diagnose.phrases import ranks_words

RETRANSMISSIONS = "retransmissions"
SEGMENT_BYTES = 1448
"""Payload of a TCP segment on Ethernet."""
_LEAST_LOSS = 0.002
"""Share of the segments; TCP's own probing of a full link causes fewer."""
_FEWEST = 20


@dataclass(frozen=True, slots=True)
class LossyLink:
    src: int
    dst: int
    retransmits: int
    loss: float
    """Share of the segments that were sent again."""


def _examine(run: ExaminedRun) -> list[Finding]:
    assert run.wire is not None
    lossy = lossy_links(run.wire)
    if not lossy:
        return []
    worst = max(lossy, key=lambda link: link.loss)
    ranks = sorted({link.src for link in lossy})
    return [
        Finding(
            kind=RETRANSMISSIONS,
            title=f"TCP retransmits {format_percent(100 * worst.loss)} of the segments from"
            f" rank {worst.src} to rank {worst.dst}",
            where=Place(ranks=ranks, hosts=hosts_of(run.graph, ranks)),
            evidence=[
                count_figure("retransmitted segments", worst.retransmits),
                share_figure("share of the segments", worst.loss),
            ],
            # The rate of the link without losses is not known.
            predicted_step_ns=None,
            interval_ns=None,
            gain_pct=None,
            gain_interval_pct=None,
            confidence="high" if worst.loss >= 5 * _LEAST_LOSS else "medium",
            action=f"Check cables, ports and queues on the way from {ranks_words(ranks)}, and other"
            " traffic there.",
            command=f"augury wire {shlex.quote(str(run.opened.path))}",
        )
    ]


def lossy_links(wire: Wire) -> list[LossyLink]:
    """Returns the links on which more is retransmitted than TCP's own probing explains."""
    rows = wire.connections
    rank_a, rank_b = wire.ranks_of(rows.process_a), wire.ranks_of(rows.process_b)
    retransmits: dict[tuple[int, int], int] = defaultdict(int)
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for src, dst, again, size_bytes in (
        (rank_a, rank_b, rows.retransmits_a, rows.sent_a),
        (rank_b, rank_a, rows.retransmits_b, rows.sent_b),
    ):
        for i in np.flatnonzero((src >= 0) & (dst >= 0) & (again >= 0) & (size_bytes > 0)).tolist():
            retransmits[int(src[i]), int(dst[i])] += int(again[i])
            sent[int(src[i]), int(dst[i])] += int(size_bytes[i])
    found = []
    for (a, b), again_ab in retransmits.items():
        loss = min(1.0, again_ab / max(1.0, sent[a, b] / SEGMENT_BYTES))
        if loss >= _LEAST_LOSS and again_ab >= _FEWEST:
            found.append(LossyLink(a, b, again_ab, loss))
    return found


LOSSY_LINKS = Detector(kinds=(RETRANSMISSIONS,), reason_against=without_wire, examine=_examine)
