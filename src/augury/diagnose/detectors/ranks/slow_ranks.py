"""Detects ranks that take longer than others for the same work in most steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from augury.core.enums import OpKind, StepState, are_communication
from augury.core.graph.graph import NONE
from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.trace.trace import Steps
from augury.core.units import format_ns, format_percent
from augury.diagnose.detectors.detector import Detector, needs_ranks
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    hosts_of,
    is_worth_reporting,
    layers_with_most,
    predicted_finding,
    ratio_figure,
    share_figure,
    time_figure,
)
from augury.diagnose.phrases import ranks_and_hosts
from augury.passes.removals.balanced_ranks import BALANCED_RANKS
from augury.passes.removals.level_ranks import (
    LEVEL_RANKS,
    WORK_GROUPS,
    SlowRanks,
    Table,
    reference_work,
    typical_work,
    work_per_step,
)

COMPUTE, INPUT, HOST = "straggler-compute", "straggler-input", "straggler-host"
UNEVEN = "batch-imbalance"

_KIND_OF_GROUP = {"compute": COMPUTE, "input": INPUT, "host": HOST}
_LEAST_SHARE = 0.02
"""Smallest excess over a typical rank, as a share of the step."""
_LEAST_SHARE_OF_ONE_STEP = 0.1
_MOST_STEPS = 0.75
"""Share of the steps in which a straggler must be slower."""
_SIGMAS = 3.0
_SAME_WORK = 0.35
"""A rank with a larger batch needs at most this share of its excess in the update as well."""
_OWN_CPU = 0.6
"""A rank with a larger batch uses at least this share of its excess as CPU time."""

SMALLER = 0.9
"""A rank with smaller batches takes less than this share of the time of others."""


@dataclass(frozen=True, slots=True)
class _Excess:
    rank: int
    group: str
    excess_ns: float
    ratio: float
    is_sure: bool


def _examine(run: ExaminedRun) -> list[Finding]:
    slow: dict[int, list[_Excess]] = defaultdict(list)
    for group in WORK_GROUPS:
        for one in _slow_in(run, group):
            slow[one.rank].append(one)
    by_kind: dict[str, list[list[_Excess]]] = defaultdict(list)
    for rank, found in slow.items():
        found.sort(key=lambda one: -one.excess_ns)
        kind = _KIND_OF_GROUP[found[0].group]
        if kind == COMPUTE and _has_larger_batch(run, rank, found[0].ratio):
            kind = UNEVEN
        by_kind[kind].append(found)
    findings = (_finding(run, kind, ranks) for kind, ranks in by_kind.items())
    return [one for one in findings if one is not None]


def _slow_in(run: ExaminedRun, group: str) -> list[_Excess]:
    """Compares the work of each rank with that of a typical other rank in the same step."""
    graph = run.graph
    total = work_per_step(graph, group)[: graph.num_ranks]
    if total.shape[1] == 0 or graph.num_ranks < 2:
        return []
    found = []
    num_steps = total.shape[1]
    typical = typical_work(total)
    for rank in range(graph.num_ranks):
        others = np.delete(total, rank, axis=0)
        middle = np.sort(others, axis=0)[(len(others) - 1) // 2]
        more = total[rank] - middle
        excess = float(np.median(more))
        spread = 1.4826 * float(np.median(np.abs(more - excess)))
        error = 1.2533 * spread / np.sqrt(num_steps)
        least = _LEAST_SHARE if num_steps > 2 else _LEAST_SHARE_OF_ONE_STEP
        if excess < max(least, run.noise / 2) * run.step_ns or excess <= _SIGMAS * error:
            continue
        if float((more > 0).mean()) < _MOST_STEPS:
            continue
        usual = reference_work(typical, (rank,))
        ratio = float(typical[rank]) / usual if usual > 0 else float("inf")
        found.append(_Excess(rank, group, excess, ratio, num_steps > 2))
    return found


def _has_larger_batch(run: ExaminedRun, rank: int, ratio: float) -> bool:
    """Tells a rank with more work from a slower one: the time of its updates, which do not depend
    on the batch, is that of other ranks, and where CPU time is known, it uses more of it."""
    if ratio <= 1 or not np.isfinite(ratio):
        return False
    graph = run.graph
    of_model = _kind_ratio(run, rank, (OpKind.FORWARD, OpKind.BACKWARD))
    of_update = _kind_ratio(run, rank, (OpKind.UPDATE,))
    if of_model is None or of_update is None or of_model <= 1.05:
        return False
    if of_update - 1 > _SAME_WORK * (of_model - 1):
        return False
    cpu = _cpu_ratio(run, rank)
    if cpu is None:
        return not graph.meta.get("source", "").startswith("synthetic")
    return cpu - 1 >= _OWN_CPU * (ratio - 1)


def has_smaller_batch(run: ExaminedRun, rank: int) -> bool:
    """Tells a rank with less work than a typical other one from a faster one, in the same way."""
    of_model = _kind_ratio(run, rank, (OpKind.FORWARD, OpKind.BACKWARD))
    of_update = _kind_ratio(run, rank, (OpKind.UPDATE,))
    if of_model is None or of_update is None or of_model >= SMALLER:
        return False
    if 1 - of_update > _SAME_WORK * (1 - of_model):
        return False
    cpu = _cpu_ratio(run, rank)
    if cpu is None:
        return not run.graph.meta.get("source", "").startswith("synthetic")
    return 1 - cpu >= _OWN_CPU * (1 - of_model)


def _kind_ratio(run: ExaminedRun, rank: int, kinds: tuple[OpKind, ...]) -> float | None:
    ops, graph = run.graph.ops, run.graph
    rows = np.flatnonzero(np.isin(ops.kind, kinds) & (ops.step >= 0))
    steps, place = np.unique(ops.step[rows], return_inverse=True)
    total: Table = np.zeros((len(graph.ranks), len(steps)))
    np.add.at(total, (ops.rank[rows], place), ops.work_ns[rows])
    if not len(steps):
        return None
    # Undisturbed steps tell more than typical ones: other load prolongs short operations most.
    quiet = np.quantile(total[: graph.num_ranks], 0.25, axis=1)
    usual = reference_work(quiet, (rank,))
    return float(quiet[rank]) / usual if usual > 0 and quiet[rank] > 0 else None


def _cpu_ratio(run: ExaminedRun, rank: int) -> float | None:
    """Returns the CPU time of the rank's main thread over that of a typical other rank."""
    if run.trace is None or run.is_on_devices:
        return None
    steps: Steps = run.trace.steps
    known = (steps.state == StepState.TIMED) & (steps.cpu_ns >= 0)
    ranks = np.unique(steps.rank[known])
    if len(ranks) < 2 or rank >= len(run.trace.ranks):
        return None
    typical = np.array([np.median(steps.cpu_ns[known & (steps.rank == one)]) for one in ranks])
    place = np.flatnonzero(ranks == run.trace.ranks[rank].rank)
    if not len(place):
        return None
    usual = reference_work(typical, (int(place[0]),))
    return float(typical[place[0]] / usual) if usual > 0 else None


def _finding(run: ExaminedRun, kind: str, slow: list[list[_Excess]]) -> Finding | None:
    graph = run.graph
    ranks = sorted(own[0].rank for own in slow)
    groups = tuple(sorted({one.group for own in slow for one in own}))
    if kind == UNEVEN:
        gain = run.predict((BALANCED_RANKS, None))
    else:
        lacking = tuple(ranks) if kind == COMPUTE else ()
        gain = run.predict((LEVEL_RANKS, SlowRanks(tuple(ranks), groups, slow_processors=lacking)))
    if gain is None or not is_worth_reporting(run, gain):
        return None
    worst = max(slow, key=lambda own: own[0].excess_ns)[0]
    on = np.isin(graph.ops.rank, ranks) & np.isin(graph.ops.kind, WORK_GROUPS[worst.group])
    excess_ns = sum(one.excess_ns for one in max(slow, key=lambda own: own[0].excess_ns))
    where, what = ranks_and_hosts(graph, ranks), _WORDS[kind]
    share = excess_ns / max(1, run.step_ns)
    title = f"{where} {'takes' if len(ranks) == 1 else 'take'} {format_ns(round(excess_ns))}"
    title += f" longer per step {what} ({format_percent(100 * share)} of the step)"
    evidence = [
        time_figure("excess over a typical rank", excess_ns),
        *([ratio_figure("time against a typical rank", worst.ratio)]
          if np.isfinite(worst.ratio) else []),
        share_figure("collectives in which it arrives last", last_arrivals(run, ranks)),
        *_cpu_figures(run, worst.rank),
    ]  # fmt: skip
    return predicted_finding(
        gain,
        kind=kind,
        title=title,
        where=Place(
            ranks=ranks,
            hosts=hosts_of(graph, ranks),
            layers=layers_with_most(graph, np.where(on, graph.ops.work_ns, 0)),
        ),
        evidence=evidence,
        action=_ACTIONS[kind],
        command=_COMMANDS.get(kind, ""),
        at_most="high" if worst.is_sure else "low",
    )


def _cpu_figures(run: ExaminedRun, rank: int) -> list[Figure]:
    cpu = _cpu_ratio(run, rank)
    return [] if cpu is None else [ratio_figure("CPU time against a typical rank", cpu)]


def last_arrivals(run: ExaminedRun, ranks: list[int]) -> float:
    """Returns the share of collectives for which one of the ranks is the last to be ready."""
    graph, ops = run.graph, run.graph.ops
    src, dst = graph.edges.sources(), graph.edges.dst
    own = ~are_communication(ops.kind[src]) & (ops.gang[dst] != NONE)
    ready_ns = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(ready_ns, dst[own], run.timeline.end_ns[src[own]])
    members = np.unique(dst[own])
    last_ns = np.zeros(graph.num_gangs, dtype=np.int64)
    np.maximum.at(last_ns, ops.gang[members], ready_ns[members])
    gangs = np.unique(ops.gang[members])
    is_last = ready_ns[members] == last_ns[ops.gang[members]]
    late = np.unique(ops.gang[members][is_last & np.isin(ops.rank[members], ranks)])
    return len(late) / max(1, len(gangs))


_WORDS = {
    COMPUTE: "for the same compute",
    INPUT: "to load data",
    HOST: "outside of recorded operations",
    UNEVEN: "for forward and backward, but not for updates: its batches are larger",
}
_ACTIONS = {
    COMPUTE: "Compare the host with the others: other load, CPU limits, clock rates, temperature.",
    INPUT: "Compare the rank's storage and its share of the data with those of other ranks.",
    HOST: "Find out what the process does there: it sleeps, waits for files, logs or checkpoints.",
    UNEVEN: "Give all ranks batches of equal size and length, such as by sorting into buckets.",
}
_COMMANDS = {HOST: "py-spy record --idle --pid PID", UNEVEN: "DistributedSampler"}

SLOW_RANKS = Detector(
    kinds=(COMPUTE, INPUT, HOST),
    reason_against=lambda run: (
        needs_ranks(run) or ("ranks are stages of a pipeline" if run.is_pipeline else "")
    ),
    examine=_examine,
)
