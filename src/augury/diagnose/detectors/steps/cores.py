"""Detects training threads that are ready to run but have no core."""

from __future__ import annotations

import numpy as np

from augury.core.enums import StepState
from augury.core.measured_step import other_load
from augury.core.results.diagnosis import Figure, Finding, Place
from augury.core.trace.trace import Trace
from augury.core.units import format_percent
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import (
    count_figure,
    hosts_of,
    is_worth_reporting,
    predicted_finding,
    share_figure,
)
from augury.diagnose.host_threads import HostThreads, host_threads
from augury.passes.compute_scale import COMPUTE_SCALE, ComputeFactor
from augury.passes.protocol import Step
from augury.passes.removals.level_ranks import WORK_GROUPS, typical_work, work_per_step

CORES = "core-contention"
_LEAST_DELAY = 0.15
"""Smallest share of the steps without a core: communication threads of a rank that has a core to
itself take up to a tenth."""
_LEAST_FACTOR = 0.2


def _examine(run: ExaminedRun) -> list[Finding]:
    trace = run.trace
    assert trace is not None
    delays_ns = delays_of(trace)
    share = max(delays_ns.values(), default=0.0) / max(1, run.step_ns)
    if share < max(_LEAST_DELAY, run.noise):
        return []
    work = sum(typical_work(work_per_step(run.graph, group)) for group in WORK_GROUPS)
    compute = np.asarray(work)
    changes: list[Step] = []
    for row, facts in enumerate(trace.ranks):
        delay_ns = delays_ns.get(facts.rank, 0.0)
        if row < len(compute) and compute[row] > 0 and delay_ns > 0:
            factor = max(_LEAST_FACTOR, 1 - delay_ns / float(compute[row]))
            changes.append((COMPUTE_SCALE, ComputeFactor(factor=factor, ranks=(row,))))
    gain = run.predict(*changes) if changes else None
    if gain is not None and gain.gain_pct > 100 * share:
        # Ranks lose their cores in different steps; no step gains more than was lost in it.
        least_ns = round(run.step_ns * (1 - share))
        gain = run.gain(least_ns, None, model_error=0.01)
    if gain is None or not is_worth_reporting(run, gain):
        return []
    late = [
        row for row, facts in enumerate(trace.ranks)
        if delays_ns.get(facts.rank, 0.0) >= _LEAST_DELAY * run.step_ns
    ]  # fmt: skip
    load = other_load(trace)
    threads = _crowded_by_threads(trace, late)
    action, command = _advice(trace, threads)
    return [
        predicted_finding(
            gain,
            kind=CORES,
            title="training threads are ready to run but have no core for"
            f" {format_percent(100 * share)} of the step",
            where=Place(ranks=late, hosts=hosts_of(run.graph, late)),
            evidence=[
                share_figure("share of the step without a core", share),
                *([] if load is None else [count_figure("cores that other processes use", load)]),
                count_figure("cores of the rank", trace.ranks[late[0]].cores),
                *_figures(threads),
            ],
            action=action,
            command=command,
            at_most="medium",
        )
    ]


def _crowded_by_threads(trace: Trace, late: list[int]) -> HostThreads | None:
    """Returns the host of late ranks whose ranks run most threads per core, if they are more than
    its cores."""
    crowded = [
        host
        for host in host_threads(trace)
        if host.num_threads > host.cores and set(host.rows) & set(late)
    ]
    return max(crowded, key=lambda host: host.num_threads / host.cores, default=None)


def _figures(threads: HostThreads | None) -> list[Figure]:
    if threads is None:
        return []
    return [
        count_figure("intra-op threads of the ranks of a host", threads.num_threads),
        count_figure("cores that these ranks share", threads.cores),
    ]


def _advice(trace: Trace, threads: HostThreads | None) -> tuple[str, str]:
    """Returns what to do, and a setting if the number of threads is the cause or is unknown."""
    if threads is not None:
        number = threads.threads_per_rank
        return (
            f"The ranks of a host run {threads.num_threads} intra-op threads on {threads.cores}"
            f" cores: use {number} per rank, by the variable or by"
            f" torch.set_num_threads({number}).",
            f"OMP_NUM_THREADS={number}",
        )
    if trace.ranks and all(facts.num_threads == 1 for facts in trace.ranks):
        return (
            "Leave cores to training: fewer loader workers per rank, fewer ranks per host, no other"
            " jobs beside it. The ranks use one intra-op thread each.",
            "",
        )
    return (
        "Leave cores to training: fewer threads and loader workers per rank, fewer ranks"
        " per host, no other jobs beside it.",
        "OMP_NUM_THREADS=1",
    )


def delays_of(trace: Trace) -> dict[int, float]:
    """Returns the median time per timed step in which the main thread of each rank had no core."""
    steps = trace.steps
    known = (steps.state == StepState.TIMED) & (steps.delay_ns >= 0)
    return {
        rank: float(np.median(steps.delay_ns[known & (steps.rank == rank)]))
        for rank in np.unique(steps.rank[known]).tolist()
    }


def _reason(run: ExaminedRun) -> str:
    if run.trace is None or not delays_of(run.trace):
        return "the recording has no times for which threads had no core"
    return "host threads only launch work of devices" if run.is_on_devices else ""


CORE_CONTENTION = Detector(kinds=(CORES,), reason_against=_reason, examine=_examine)
