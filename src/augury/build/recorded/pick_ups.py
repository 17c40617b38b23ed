"""Delays between the call of a collective and its start by a communication thread."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate

from augury.build.recorded.recorded_run import RecordedRun

_Place = tuple[int, int, int]
"""Step, group and rank."""


class PickUps:
    """Delays of the collectives of a run, apart from the time in which all threads of their group
    were busy with others of the same step."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        own: dict[_Place, list[int]] = defaultdict(list)
        for key, one in enumerate(run.collectives):
            for rank in one.rows:
                own[one.step, one.group, rank].append(key)
        self._in_line: dict[_Place, tuple[list[int], list[int]]] = {}
        """Sequence numbers, rising, and the latest end up to each."""
        self._spans: dict[_Place, tuple[list[int], list[int]]] = {}
        """Starts and ends, each rising."""
        for place, keys in own.items():
            found, rank = [run.collectives[key] for key in keys], place[2]
            if run.concurrent[place[1]] == 1:
                found.sort(key=lambda one: one.sequence)
                ends_ns = accumulate((one.end_ns[rank] for one in found), max)
                self._in_line[place] = [one.sequence for one in found], list(ends_ns)
            else:
                self._spans[place] = (
                    sorted(one.start_ns[rank] for one in found),
                    sorted(one.end_ns[rank] for one in found),
                )

    def delay_ns(self, key: int, rank: int) -> int:
        """Returns the time from the call of a collective to its start. With one thread it counts
        from the end of all earlier calls; with several it is 0 if all of them were busy."""
        one = self._run.collectives[key]
        called_ns, start_ns = one.arrival_ns[rank], one.start_ns[rank]
        place = one.step, one.group, rank
        num_threads = self._run.concurrent[one.group]
        if num_threads == 1:
            sequences, ends_ns = self._in_line[place]
            earlier = bisect_left(sequences, one.sequence)
            free_ns = ends_ns[earlier - 1] if earlier else called_ns
            return max(0, start_ns - max(called_ns, free_ns))
        starts_ns, ends_ns = self._spans[place]
        busy = bisect_right(starts_ns, called_ns) - bisect_right(ends_ns, called_ns)
        if start_ns <= called_ns < one.end_ns[rank]:
            busy -= 1  # the collective itself
        return start_ns - called_ns if busy < num_threads else 0
