"""Simulated pipeline-parallel jobs, written as tables of operations with known step times.

The simulation shares no code with Augury: ranks follow a schedule in program order, a message moves
when both sides have posted it, collectives when all members have arrived.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Compute = tuple[str, int, int]
"""Direction, chunk within the stage, and micro-batch."""


@dataclass(kw_only=True)
class Job:
    schedule: str = "1f1b"
    """gpipe, 1f1b or interleaved."""
    num_stages: int = 4
    num_replicas: int = 2
    num_lanes: int = 1
    num_chunks: int = 1
    num_micro_batches: int = 8
    num_steps: int = 3
    forward_s: float = 0.020
    backward_s: float = 0.040
    transfer_s: float = 0.002
    collective_s: float = 0.015
    update_s: float = 0.010
    jitter: float = 0.1
    """Relative standard deviation of compute."""
    gap_s: float = 0.0
    """Longest time of the host before an operation."""
    pause_s: float = 0.0
    """Longest pause after backward: garbage collection."""
    slow: dict[int, float] = field(default_factory=dict)
    """Factors on the compute of some ranks."""
    late_s: float = 0.0
    """Latest start of a rank within the step."""
    eager: bool = False
    """Whether a send ends without its receive."""
    growing: float = 1.0
    """Factor on compute from step to step."""
    seed: int = 0

    def rank(self, replica: int, stage: int, lane: int) -> int:
        return (replica * self.num_stages + stage) * self.num_lanes + lane

    @property
    def places(self) -> list[tuple[int, int, int]]:
        return [
            (replica, stage, lane)
            for replica in range(self.num_replicas)
            for stage in range(self.num_stages)
            for lane in range(self.num_lanes)
        ]


def program(job: Job, stage: int) -> list[Compute]:
    """The order in which a stage computes."""
    stages, chunks, batches = job.num_stages, job.num_chunks, job.num_micro_batches
    if job.schedule == "gpipe":
        forward = [("forward", 0, b) for b in range(batches)]
        return forward + [("backward", 0, b) for b in range(batches)]
    if job.schedule == "1f1b":
        order = [(0, b) for b in range(batches)]
        warm_up = min(stages - stage - 1, batches)
    else:
        total = chunks * batches
        round_size = stages * chunks
        order = [
            ((k % round_size) // stages, (k // round_size) * stages + k % stages)
            for k in range(total)
        ]
        warm_up = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    forward = [("forward", chunk, b) for chunk, b in order]
    backward = [("backward", chunks - 1 - chunk, b) for chunk, b in order]
    result = forward[:warm_up]
    for f, b in zip(forward[warm_up:], backward, strict=False):
        result += [f, b]
    return result + backward[len(forward) - warm_up :]


class Step:
    """Times of all operations of one step."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number
        self.programs = {stage: program(job, stage) for stage in range(job.num_stages)}
        self.rows: list[dict[str, Any]] = []
        self.begin = cache(self._begin)
        self.end = cache(self._end)
        self.message = cache(self._message)

    def draw(self, *key: object) -> random.Random:
        """The same value for the same question, whatever is asked before."""
        return random.Random(f"{self.job.seed} {self.number} {key}")

    def gap(self, *key: object) -> float:
        return self.draw("gap", *key).uniform(0, self.job.gap_s)

    def duration(self, place: tuple[int, int, int], what: Compute) -> float:
        job = self.job
        base = (job.forward_s if what[0] == "forward" else job.backward_s) / job.num_chunks
        varied = base * max(0.2, self.draw(place, what).gauss(1, job.jitter))
        return varied * job.slow.get(job.rank(*place), 1.0) * job.growing**self.number

    def start_of_rank(self, place: tuple[int, int, int]) -> float:
        if place == (0, 0, 0):
            return 0.0
        return self.draw("late", place).uniform(0, self.job.late_s)

    def neighbour(
        self, place: tuple[int, int, int], what: Compute, *, sends: bool
    ) -> tuple[tuple[int, int, int], Compute] | None:
        """The compute on another rank that needs this one's data, or that makes it."""
        replica, stage, lane = place
        direction, chunk, batch = what
        ahead = (direction == "forward") == sends
        position = chunk * self.job.num_stages + stage + (1 if ahead else -1)
        if not 0 <= position < self.job.num_chunks * self.job.num_stages:
            return None
        there = (replica, position % self.job.num_stages, lane)
        return there, (direction, position // self.job.num_stages, batch)

    def previous(self, place: tuple[int, int, int], what: Compute) -> Compute | None:
        order = self.programs[place[1]]
        at = order.index(what)
        return order[at - 1] if at else None

    def posted_receive(self, place: tuple[int, int, int], what: Compute) -> float:
        """The host posts a receive when the compute before has ended."""
        before = self.previous(place, what)
        free = self.start_of_rank(place) if before is None else self.end(place, before)
        return free + self.gap("recv", place, what) / 4

    def posted_send(self, place: tuple[int, int, int], what: Compute) -> float:
        return self.end(place, what) + self.gap("send", place, what) / 4

    def _message(self, place: tuple[int, int, int], what: Compute) -> tuple[float, ...]:
        """Start and end of the send and of the receive that ``what`` needs at ``place``."""
        found = self.neighbour(place, what, sends=False)
        assert found is not None
        sent, received = self.posted_send(*found), self.posted_receive(place, what)
        takes = self.job.transfer_s * self.draw("wire", place, what).uniform(0.8, 1.2)
        if self.job.eager:
            return sent, sent + takes, received, max(received, sent + takes) + 1e-5
        end = max(sent, received) + takes
        return sent, end, received, end

    def _begin(self, place: tuple[int, int, int], what: Compute) -> float:
        before = self.previous(place, what)
        ready = [self.start_of_rank(place) if before is None else self.end(place, before)]
        if self.neighbour(place, what, sends=False) is not None:
            ready.append(self.message(place, what)[3])
        if what[0] == "forward":
            ready.append(self.gathered(place[1], place[2]))
        return max(ready) + self.gap(place, what)

    def _end(self, place: tuple[int, int, int], what: Compute) -> float:
        return self.begin(place, what) + self.duration(place, what)

    def gathered(self, stage: int, lane: int) -> float:
        starts = [
            self.start_of_rank((replica, stage, lane)) for replica in range(self.job.num_replicas)
        ]
        return max(starts) + self.job.collective_s / 2

    def add(
        self, place: tuple[int, int, int], optype: str, start: float, end: float, **more: int
    ) -> None:
        self.rows.append(
            {
                "dp_rank": place[0],
                "stage": place[1],
                "rank": self.job.rank(*place),
                "step": self.number,
                "optype": optype,
                "start_ts": start,
                "duration": end - start,
                "mc": more.get("mc", 0),
                "gmc": more.get("mc", 0) * self.job.num_stages + place[1],
            }
        )

    def run(self) -> list[dict[str, Any]]:
        for place in self.job.places:
            self.add(
                place,
                "params-all-gather",
                self.start_of_rank(place),
                self.gathered(place[1], place[2]),
            )
            for what in self.programs[place[1]]:
                more = {"mc": what[1]}
                begin, end = self.begin(place, what), self.end(place, what)
                self.add(place, f"{what[0]}-compute", begin, end, **more)
                if self.neighbour(place, what, sends=False) is not None:
                    _, _, start, end = self.message(place, what)
                    self.add(place, f"{what[0]}-recv", start, end, **more)
                needed = self.neighbour(place, what, sends=True)
                if needed is not None:
                    start, end, _, _ = self.message(*needed)
                    self.add(place, f"{what[0]}-send", start, end, **more)
        self._finish()
        return self.rows

    def _finish(self) -> None:
        job = self.job
        free = {place: self.end(place, self.programs[place[1]][-1]) for place in job.places}
        for place in job.places:
            if job.pause_s:
                pause = self.draw("gc", place).uniform(0, job.pause_s)
                self.add(place, "gc", free[place], free[place] + pause)
                free[place] += pause
        ends = {0, job.num_stages - 1}
        for key, takes, optype, chosen in (
            (lambda p: (p[0], p[2]), 0.2, "embedding-grads-all-reduce", lambda p: p[1] in ends),
            (lambda p: (p[1], p[2]), 1.0, "grads-reduce-scatter", lambda _: True),
            (lambda _: (), 0.1, "optimizer-clip-main-grad", lambda _: True),
        ):
            posted = {
                place: free[place] + self.gap(optype, place)
                for place in job.places
                if chosen(place)
            }
            arrived: dict[Any, float] = {}
            for place, at in posted.items():
                arrived[key(place)] = max(arrived.get(key(place), 0.0), at)
            for place, at in posted.items():
                end = arrived[key(place)] + takes * job.collective_s
                self.add(place, optype, at, end)
                free[place] = end
        for place in job.places:
            begin = free[place] + self.gap("optimizer", place)
            self.add(place, "optimizer", begin, begin + job.update_s * (1 + 0.1 * place[1]))


def simulate(job: Job) -> list[dict[str, Any]]:
    """Returns the rows of the table, without sequence numbers."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        return [row for number in range(job.num_steps) for row in Step(job, number).run()]
    finally:
        sys.setrecursionlimit(limit)


def step_times(rows: list[dict[str, Any]]) -> list[float]:
    """Returns the duration of each step: from the first start to the last end."""
    times = []
    for step in sorted({row["step"] for row in rows}):
        own = [row for row in rows if row["step"] == step]
        end = max(row["start_ts"] + row["duration"] for row in own)
        times.append(end - min(row["start_ts"] for row in own))
    return times


def numbered(rows: list[dict[str, Any]], *, per_chunk: bool = False) -> list[dict[str, Any]]:
    """Adds ``seq_id``: the position among the operations of one kind, rank and step."""
    counts: dict[Any, int] = {}
    result = []
    for row in sorted(rows, key=lambda row: row["start_ts"]):
        key = row["rank"], row["step"], row["optype"], row["mc"] if per_chunk else 0
        counts[key] = counts.get(key, -1) + 1
        result.append(row | {"seq_id": counts[key]})
    return result


def write_table(rows: list[dict[str, Any]], path: Path, *, drop: tuple[str, ...] = ()) -> Path:
    import polars

    frame = polars.DataFrame(rows).drop(*drop)
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path
