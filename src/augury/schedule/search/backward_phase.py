"""Chooses messages while backward runs: dynamic programming over gaps between releases.

A message that starts between two releases gains nothing: it can start at the release before, with
the message before it ending there, and carry the bytes that this one no longer carries. So messages
start and end at releases and carry the most urgent released bytes. Dynamic programming from the
first to the last release chooses these points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import I8
from augury.core.plan.problem import Problem
from augury.schedule.search.bursts import find_bursts
from augury.schedule.search.search_inputs import Floats, Terms

MAX_POINTS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Messages sent up to some time, with the step that they allow."""

    promise_ns: float
    """Shortest possible step, if one message carries all that is left."""
    left_ns: float
    rest_ns: Floats
    messages: tuple[tuple[float, float], ...]
    """Start of each message, and the most time that its bytes may take."""


def start_points(problem: Problem, terms: Terms) -> Floats:
    """Returns releases at which messages may start: ends of bursts, other releases whose distance
    is worth the overhead of a message, and the last one."""
    releases = np.unique(terms.release_ns)[::-1].tolist()
    ends = {float(burst.end_ns) for burst in find_bursts(problem)}
    apart_ns = terms.overhead_ns / 4
    while True:
        points = releases[:1]
        for release_ns in releases[1:]:
            gap_ns = points[-1] - release_ns
            if gap_ns > apart_ns or (release_ns in ends and 4 * gap_ns > apart_ns):
                points.append(release_ns)
        if len(points) <= MAX_POINTS:
            return np.array(points[::-1])
        apart_ns = max(1.3 * apart_ns, (releases[0] - releases[-1]) / MAX_POINTS / 4)


def fill_gaps(
    terms: Terms,
    points_ns: Floats,
    tail_ns: Floats,
    *,
    bound_ns: float,
    slower: float = 1.0,
    early_ns: float = 0.0,
    width: int = 2,
) -> list[Filled]:
    """Returns the ``width`` best ways up to the last release, best first. Messages must end by the
    next release even if that is early by ``early_ns`` and the network is slower."""
    beside_ns = tail_ns + terms.overhead_ns + terms.latency_ns
    ways: list[list[Filled]] = [[] for _ in points_ns]
    ways[0].append(Filled(bound_ns, float(terms.work_ns.sum()), terms.work_ns, ()))
    for here, now_ns in enumerate(points_ns[:-1].tolist()):
        is_there = terms.release_ns <= now_ns
        room_ns = (points_ns[here + 1 :] - now_ns - terms.overhead_ns - early_ns) / slower
        for way in _best(ways[here], width):
            there_ns = np.where(is_there, way.rest_ns, 0.0)
            useful = _useful(room_ns, float(there_ns.sum()))
            sent_ns = np.zeros((1 + len(useful), len(there_ns)))
            before_ns = np.cumsum(there_ns) - there_ns
            np.clip(room_ns[useful, None] - before_ns, 0.0, there_ns, out=sent_ns[1:])
            rest_ns = way.rest_ns - sent_ns
            left_ns = np.cumsum(rest_ns, axis=1)
            # The first row sends nothing until the next release.
            targets = np.concatenate([[0], useful]) + here + 1
            promises_ns = (left_ns + beside_ns).max(axis=1) + points_ns[targets]
            for row, target in enumerate(targets.tolist()):
                messages = way.messages
                if row:
                    messages = (*messages, (now_ns, float(room_ns[useful[row - 1]])))
                promise_ns = max(bound_ns, float(promises_ns[row]))
                ways[target].append(
                    Filled(promise_ns, float(left_ns[row, -1]), rest_ns[row], messages)
                )
    return _best(ways[-1], width)


def _useful(room_ns: Floats, there_ns: float) -> I8:
    """Returns gaps into which some bytes fit. Of gaps into which all fit, only the first counts."""
    if there_ns == 0.0:
        return np.arange(0)
    too_small = int(np.searchsorted(room_ns, 0.0, side="right"))
    return np.arange(too_small, min(len(room_ns), int(np.searchsorted(room_ns, there_ns)) + 1))


def _best(ways: list[Filled], width: int) -> list[Filled]:
    best: list[Filled] = []
    for way in sorted(ways, key=lambda way: (way.promise_ns, way.left_ns, len(way.messages))):
        if not best or (way.promise_ns, way.left_ns) != (best[-1].promise_ns, best[-1].left_ns):
            best.append(way)
            if len(best) == width:
                break
    return best
