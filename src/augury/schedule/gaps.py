"""What to send while backward runs: messages that fill the gaps between releases.

Nothing is gained by a message that starts between two releases: let it start at the one before,
and the message before it end there; what that no longer carries, this one can. So messages start
at releases and end at releases, and carry the most urgent bytes that are there; which releases,
is found by dynamic programming from the first to the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.problem import Problem
from augury.schedule.bursts import find_bursts
from augury.schedule.terms import Floats, Terms

MAX_POINTS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Up to some point of time: what messages have been sent, and what that promises."""

    promise_ns: float
    """No step is shorter from here on, if one message carries all that is left."""
    left_ns: float
    rest_ns: Floats
    messages: tuple[tuple[float, float], ...]
    """Start, and the most time that bytes may take."""


def start_points(problem: Problem, terms: Terms) -> Floats:
    """Releases at which messages may start: ends of bursts, and whatever else lies further apart
    than a message's overhead makes worth while; in the end the last one."""
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
    """The ``width`` best ways up to the last release, best first. Messages are to be done by the
    next release even if that comes early, and if the network is slower."""
    beside_ns = tail_ns + terms.overhead_ns + terms.latency_ns
    ways: list[list[Filled]] = [[] for _ in points_ns]
    ways[0].append(Filled(0.0, 0.0, terms.work_ns, ()))
    for here, now_ns in enumerate(points_ns[:-1].tolist()):
        is_there = terms.release_ns <= now_ns
        for way in _best(ways[here], width):
            there_ns = np.where(is_there, way.rest_ns, 0.0)
            total_ns = float(there_ns.sum())
            room_ns = points_ns[here + 1 :] - (now_ns + terms.overhead_ns)
            room_ns = (room_ns - early_ns) / slower
            # Of all gaps that everything fits into the first is as good as any.
            fits = int(np.searchsorted(room_ns, total_ns)) + 1
            tight = int(np.searchsorted(room_ns[:fits], 0.0, side="right"))
            room_ns = room_ns[tight:fits]
            if total_ns == 0.0:
                room_ns = room_ns[:0]
            before_ns = np.cumsum(there_ns) - there_ns
            rest_ns = np.concatenate(
                [
                    way.rest_ns[None, :],
                    way.rest_ns - np.clip(room_ns[:, None] - before_ns, 0.0, there_ns),
                ]
            )
            left_ns = np.cumsum(rest_ns, axis=1)
            targets = [here + 1, *range(here + 1 + tight, here + 1 + tight + len(room_ns))]
            promise_ns = (left_ns + beside_ns).max(axis=1) + points_ns[targets]
            rooms = [None, *room_ns.tolist()]
            for row, target in enumerate(targets):
                room = rooms[row]
                ways[target].append(
                    Filled(
                        max(bound_ns, float(promise_ns[row])),
                        float(left_ns[row, -1]),
                        rest_ns[row],
                        way.messages if room is None else (*way.messages, (now_ns, room)),
                    )
                )
    return _best(ways[-1], width)


def _best(ways: list[Filled], width: int) -> list[Filled]:
    best: list[Filled] = []
    for way in sorted(ways, key=lambda way: (way.promise_ns, way.left_ns, len(way.messages))):
        if not best or (way.promise_ns, way.left_ns) != (best[-1].promise_ns, best[-1].left_ns):
            best.append(way)
            if len(best) == width:
                break
    return best
