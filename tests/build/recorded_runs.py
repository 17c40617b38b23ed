"""Traces of synthetic jobs from an independent simulation: ranks compute and communicate
concurrently, interfere and share a link, with all times known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from augury.core.columns import Table
from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringPool
from augury.core.trace.trace import (
    Calibration,
    Events,
    GradientEvents,
    RankFacts,
    Steps,
    Streams,
    Trace,
)
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT, COPIES_GRADIENT, PREPARES_GRADIENT

AT_ONCE = 2
MS = 1_000_000


@dataclass(frozen=True)
class Run:
    """Work of the main thread; without a name the profiler does not record it."""

    work_ns: int
    name: str = ""
    phase: Phase = Phase.NONE
    kind: OpKind = OpKind.OTHER


@dataclass(frozen=True)
class Send:
    key: int


@dataclass(frozen=True)
class Wait:
    key: int


@dataclass(frozen=True)
class Transfer:
    """One collective; ``work_ns`` is its time alone on the link."""

    work_ns: int
    size_bytes: int
    kind: OpKind = OpKind.ALL_REDUCE


Item = Run | Send | Wait


@dataclass(frozen=True)
class Job:
    """A job. ``programs[rank]`` is a list of steps, each a list of items; transfers are among all
    ranks. Compute runs at ``compute_rate`` while its rank communicates, transfers at
    ``transfer_rate`` while any rank computes."""

    programs: Sequence[Sequence[Sequence[Item]]]
    transfers: Mapping[int, Transfer]
    compute_rate: float = 1.0
    transfer_rate: float = 1.0
    first_step: int = 10


@dataclass
class Seen:
    """Exact times of the simulation."""

    spans: dict[int, list[tuple[Run, int, float, float]]]
    """For each rank: the run items with their step, start and end."""
    granted: dict[tuple[int, int], float]
    done: dict[int, float]
    step_of: dict[int, int]
    step_ends: dict[int, list[float]]
    asked: dict[tuple[int, int], float] = field(default_factory=dict)
    waited: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """Waits by exchange and rank."""
    delay: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))


class _Rank:
    def __init__(self, steps: Sequence[Sequence[Item]], first_step: int) -> None:
        self.items = [(first_step + i, item) for i, step in enumerate(steps) for item in step]
        self.last = [sum(len(step) for step in steps[: i + 1]) for i in range(len(steps))]
        self.at = 0
        self.left = 0.0
        self.began = 0.0
        self.sent: list[int] = []

    @property
    def running(self) -> Run | None:
        item = self.items[self.at][1] if self.at < len(self.items) else None
        return item if isinstance(item, Run) else None


def simulate(job: Job) -> Seen:
    ranks = [_Rank(steps, job.first_step) for steps in job.programs]
    seen = Seen({i: [] for i in range(len(ranks))}, {}, {}, {}, {i: [] for i in range(len(ranks))})
    left = {key: float(transfer.work_ns) for key, transfer in job.transfers.items()}
    now = 0.0
    for rank in ranks:
        _enter(rank, now)
    while True:
        _settle(ranks, seen, now)
        moving = [
            key
            for key in left
            if key not in seen.done and all((key, i) in seen.granted for i in range(len(ranks)))
        ]
        computing = [i for i, rank in enumerate(ranks) if rank.running]
        if not moving and not computing:
            assert all(rank.at == len(rank.items) for rank in ranks), "stuck"
            return seen
        speed = job.transfer_rate if computing else 1.0
        compute = job.compute_rate if moving else 1.0
        pace = speed / max(1, len(moving))
        ahead = min(
            [left[key] / pace for key in moving] + [ranks[i].left / compute for i in computing]
        )
        now += ahead
        for key in moving:
            left[key] -= ahead * pace
            if left[key] < 1e-3:
                seen.done[key] = now
        for i in computing:
            rank = ranks[i]
            seen.delay[i, rank.items[rank.at][0]] += ahead * (1 - compute)
            rank.left -= ahead * compute
            if rank.left < 1e-3:
                step, run = rank.items[rank.at]
                assert isinstance(run, Run)
                seen.spans[i].append((run, step, rank.began, now))
                _next(rank, seen, i, now)


def _enter(rank: _Rank, now: float) -> None:
    run = rank.running
    rank.left, rank.began = float(run.work_ns) if run else 0.0, now


def _next(rank: _Rank, seen: Seen, number: int, now: float) -> None:
    rank.at += 1
    if rank.at in rank.last:
        seen.step_ends[number].append(now)
    _enter(rank, now)


def _settle(ranks: list[_Rank], seen: Seen, now: float) -> None:
    """Executes all items that take no time."""
    for number, rank in enumerate(ranks):
        while rank.at < len(rank.items):
            step, item = rank.items[rank.at]
            if isinstance(item, Send):
                rank.sent.append(item.key)
                seen.asked[item.key, number] = now
                seen.step_of.setdefault(item.key, step)
            elif isinstance(item, Run) or item.key not in seen.done:
                break
            else:
                seen.waited[item.key, number] = (rank.began, now)
            _next(rank, seen, number, now)
        held = [key for key in rank.sent if (key, number) in seen.granted and key not in seen.done]
        for key in rank.sent:
            if (key, number) not in seen.granted and len(held) < AT_ONCE:
                seen.granted[key, number] = now
                held.append(key)


def trace_of(
    job: Job,
    *,
    states: Mapping[int, StepState] | None = None,
    buckets: Sequence[Sequence[int]] = (),
    sizes: Sequence[int] = (),
    delays: bool = True,
    waits: Collection[OpKind] = (),
    calibration: Iterable[Calibration] = (),
) -> Trace:
    """Returns the Trace. ``buckets`` and ``sizes``: the gradients of each bucket, and their bytes.
    Steps are timed unless ``states`` differs; ``waits``: kinds of the collectives whose waits
    the recorder saw: those that the program called."""
    seen = simulate(job)
    num_ranks = len(job.programs)
    pool = StringPool([""])
    events: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for rank in range(num_ranks):
        for run, step, begin, end in seen.spans[rank]:
            if run.name:
                events.append(
                    _event(rank, 2 * rank, pool.number(run.name), step, begin, end)
                    | {"kind": run.kind, "phase": run.phase}
                )
        for sequence, key in enumerate(sorted(seen.done, key=lambda key: _order(job, key))):
            transfer = job.transfers[key]
            name = pool.number(f"gloo:{transfer.kind.label}")
            events.append(
                _event(
                    rank,
                    2 * rank + 1,
                    name,
                    seen.step_of[key],
                    seen.granted[key, rank],
                    seen.done[key],
                )
                | {
                    "kind": transfer.kind,
                    "arrival_ns": round(seen.asked[key, rank]),
                    "size_bytes": transfer.size_bytes,
                    "group": 0,
                    "sequence": sequence,
                }
            )
            if transfer.kind in waits:
                begin, end = seen.waited[key, rank]
                wait = _event(rank, 2 * rank, pool.number("wait"), seen.step_of[key], begin, end)
                events.append(wait | {"kind": OpKind.SYNC, "group": 0, "sequence": sequence})
        begin = 0.0
        for i, end in enumerate(seen.step_ends[rank]):
            number = job.first_step + i
            steps.append(
                {
                    "rank": rank,
                    "step": number,
                    "start_ns": round(begin),
                    "end_ns": round(end),
                    "state": (states or {}).get(number, StepState.TIMED),
                    "cpu_ns": NONE,
                    "delay_ns": round(seen.delay[rank, number]) if delays else NONE,
                    "helper_cpu_ns": _helper_cpu_ns(job, seen, number) if delays else NONE,
                }
            )
            begin = end
    events.sort(key=lambda e: (e["rank"], e["stream"], e["start_ns"], -e["dur_ns"]))
    gradients = [
        {
            "rank": rank,
            "order": gradient,
            "name": pool.number(f"parameter{gradient}"),
            "size_bytes": sizes[gradient],
            "bucket": bucket,
            "group": 0,
        }
        for rank in range(num_ranks)
        for gradient, bucket in sorted((g, b) for b, own in enumerate(buckets) for g in own)
    ]
    streams = [
        {"kind": kind, "rank": rank, "name": pool.number(kind.label)}
        for rank in range(num_ranks)
        for kind in (StreamKind.MAIN_THREAD, StreamKind.COMMUNICATION)
    ]
    return Trace(
        events=rows(Events, events),
        streams=rows(Streams, streams),
        steps=rows(Steps, steps),
        strings=pool.table(),
        # Each rank is alone on a host with one core: CPU time of its other threads is missing for
        # compute.
        ranks=[RankFacts(rank=rank, host=f"host{rank}", cores=1) for rank in range(num_ranks)],
        world_size=num_ranks,
        groups=[list(range(num_ranks))],
        gradients=rows(GradientEvents, gradients),
        calibration=list(calibration),
    )


def _helper_cpu_ns(job: Job, seen: Seen, step: int) -> int:
    """CPU time of communication on its rank's core such that the rest equals the slowed compute."""
    work_ns = sum(job.transfers[key].work_ns for key, own in seen.step_of.items() if own == step)
    return round(work_ns * (1 - job.compute_rate) / job.transfer_rate)


def _order(job: Job, key: int) -> int:
    """Position of the transfer in the first rank's program, which sequence numbers follow."""
    sends = [item.key for step in job.programs[0] for item in step if isinstance(item, Send)]
    return sends.index(key)


def _event(
    rank: int, stream: int, name: int, step: int, begin: float, end: float
) -> dict[str, Any]:
    start_ns = round(begin)
    return {
        "kind": OpKind.OTHER,
        "rank": rank,
        "stream": stream,
        "name": name,
        "start_ns": start_ns,
        "dur_ns": round(end) - start_ns,
        "arrival_ns": start_ns,
        "step": step,
        "phase": Phase.NONE,
        "layer": NONE,
        "size_bytes": 0,
        "group": NONE,
        "sequence": NONE,
        "cause": NONE,
        "parent": NONE,
    }


def rows(table: type[Table], entries: Sequence[Mapping[str, int]]) -> Any:
    return table(**{name: [int(e[name]) for e in entries] for name, _ in table.schema()})


def ddp_step(
    *,
    forward: Sequence[int],
    backward: Sequence[int],
    buckets: Sequence[Sequence[int]],
    copies: Sequence[int],
    update: int,
    first_key: int,
    unseen: int = 0,
    micro_batches: int = 1,
    broadcasts: Sequence[int] = (),
    detailed: bool = False,
    every_backward: bool = False,
) -> list[Item]:
    """One step of DistributedDataParallel. ``backward[i]`` ends with gradient i; ``copies[i]`` is
    the time to copy it out of its bucket; ``unseen`` is unrecorded time between phases.
    ``broadcasts``: keys of collectives that forward waits for, as for BatchNorm's buffers.
    ``every_backward``: gradients of all micro-batches are reduced, as without ``no_sync``."""
    items: list[Item] = []
    if broadcasts:
        items.append(Run(1_000, "aten::cat", Phase.FORWARD))
        items += [Send(key) for key in broadcasts]
        items += [Wait(key) for key in broadcasts]
    for batch in range(micro_batches):
        items += [Run(ns, "aten::mm", Phase.FORWARD) for ns in forward]
        items += [Run(unseen)] if unseen else []
        ready: set[int] = set()
        sent = 0
        for gradient, ns in enumerate(backward):
            items += [
                Run(ns - ns // 8, "autograd::engine::evaluate_function: Mm", Phase.BACKWARD),
                Run(ns // 8, ACCUMULATES_GRADIENT, Phase.BACKWARD),
            ]
            if detailed:
                items.append(Run(1, PREPARES_GRADIENT, Phase.BACKWARD))
            ready.add(gradient)
            is_sent = every_backward or batch == micro_batches - 1
            while is_sent and sent < len(buckets) and ready >= {*buckets[sent]}:
                items.append(Send(first_key + sent))
                sent += 1
        if every_backward and batch < micro_batches - 1:
            items += [Wait(first_key + number) for number in range(len(buckets))]
            first_key += len(buckets)
    for number, bucket in enumerate(buckets):
        items.append(Wait(first_key + number))
        for gradient in bucket:
            name = COPIES_GRADIENT if detailed else ""
            items += [Run(copies[gradient], name, Phase.BACKWARD)] if copies[gradient] else []
    items += [Run(unseen)] if unseen else []
    items.append(Run(update, "Optimizer.step#SGD.step", Phase.UPDATE))
    return items


@dataclass(frozen=True)
class DdpRun:
    """A job of DistributedDataParallel, and the inputs of its Trace."""

    job: Job
    buckets: list[list[int]]
    sizes: list[int]
    detailed: frozenset[int] = frozenset()

    def trace(self, *, states: Mapping[int, StepState] | None = None, **options: Any) -> Trace:
        detailed = {self.job.first_step + i: StepState.DETAILED for i in self.detailed}
        return trace_of(
            self.job,
            states=detailed | dict(states or {}),
            buckets=self.buckets,
            sizes=self.sizes,
            **options,
        )


def ddp_run(
    *,
    num_ranks: int = 2,
    num_steps: int = 3,
    sizes: Sequence[int] = (4_000_000, 1_000_000, 2_000_000, 3_000_000),
    buckets: Sequence[Sequence[int]] = ((0, 1), (2, 3)),
    forward: Sequence[int] = (2 * MS, 3 * MS),
    backward: Sequence[int] = (3 * MS, 2 * MS, 4 * MS, 2 * MS),
    copies: Sequence[int] = (40_000, 10_000, 20_000, 30_000),
    ns_per_byte: float = 1.0,
    latency_ns: int = 100_000,
    slower: Mapping[int, float] | None = None,
    vary: Mapping[tuple[int, int], float] | None = None,
    compute_rate: float = 1.0,
    transfer_rate: float = 1.0,
    detailed: Iterable[int] = (),
    broadcast: bool = False,
    num_broadcasts: int = 1,
    micro_batches: int = 1,
    every_backward: bool = False,
    unseen: int = 0,
) -> DdpRun:
    """Makes a job. ``slower`` scales the compute of ranks, ``vary`` that of a (rank, step); steps
    count from 0 there and in ``detailed``."""
    detailed = frozenset(detailed)
    transfers: dict[int, Transfer] = {}
    programs: list[list[list[Item]]] = [[] for _ in range(num_ranks)]
    reduced = [*buckets] * (micro_batches if every_backward else 1)
    per_step = len(reduced) + num_broadcasts
    for step in range(num_steps):
        for number, bucket in enumerate(reduced):
            size = sum(sizes[gradient] for gradient in bucket)
            work = latency_ns + round(size * ns_per_byte)
            transfers[step * per_step + number] = Transfer(work, size)
        first = step * per_step + len(reduced)
        own = range(first, first + num_broadcasts) if broadcast else ()
        for key in own:
            transfers[key] = Transfer(latency_ns, 4_096, OpKind.BROADCAST)
        for rank in range(num_ranks):
            scale = (slower or {}).get(rank, 1.0) * (vary or {}).get((rank, step), 1.0)
            programs[rank].append(
                ddp_step(
                    forward=[round(ns * scale) for ns in forward],
                    backward=[round(ns * scale) for ns in backward],
                    buckets=buckets,
                    copies=copies,
                    update=round(MS * scale),
                    first_key=step * per_step,
                    unseen=unseen,
                    micro_batches=micro_batches,
                    broadcasts=own,
                    detailed=step in detailed,
                    every_backward=every_backward,
                )
            )
    job = Job(programs, transfers, compute_rate, transfer_rate)
    return DdpRun(job, [list(bucket) for bucket in buckets], list(sizes), detailed)
