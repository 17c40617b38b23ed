"""Detects ranks that compute with few threads while most cores of their host are idle."""

from __future__ import annotations

import numpy as np

from augury.core.results.diagnosis import Finding, Place
from augury.core.trace.trace import Trace
from augury.diagnose.detectors.detector import Detector
from augury.diagnose.detectors.steps.cores import delays_of
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.findings import count_figure, share_figure
from augury.diagnose.host_threads import HostThreads, host_threads
from augury.passes.removals.level_ranks import typical_work, work_per_step

TOO_FEW_THREADS = "too-few-threads"
_LEAST_COMPUTE = 0.6
"""Share of the step from which compute bounds it."""
_MOST_BUSY = 0.5
"""Share of the cores: two logical cores may be one physical core, which one thread fills."""
_MOST_OTHER = 0.1
"""Share of the cores that other processes may use."""
_MOST_DELAY = 0.02
"""Share of the step for which threads may wait for a core."""


def _examine(run: ExaminedRun) -> list[Finding]:
    trace = run.trace
    assert trace is not None
    compute = np.asarray(typical_work(work_per_step(run.graph, "compute"))) / max(1, run.step_ns)
    delays_ns = delays_of(trace)
    found = []
    for host in host_threads(trace):
        rows = [row for row in host.rows if row < len(compute)]
        if not rows or float(compute[rows].min()) < _LEAST_COMPUTE or not _has_idle_cores(host):
            continue
        ranks = [trace.ranks[row].rank for row in host.rows]
        if any(delays_ns.get(rank, 0.0) > _MOST_DELAY * run.step_ns for rank in ranks):
            continue
        found.append((host, rows, float(compute[rows].min())))
    if not found:
        return []
    # One setting holds for the whole job.
    host, _, share = min(found, key=lambda one: one[0].threads_per_rank)
    num_threads = _advised(host)
    assert host.cpu is not None
    rows = [row for _, own, _ in found for row in own]
    return [
        Finding(
            kind=TOO_FEW_THREADS,
            title=f"the ranks of a host compute with {host.num_threads} threads on {host.cores}"
            " cores, most of which are idle",
            where=Place(ranks=rows, hosts=[one.host for one, _, _ in found if one.host]),
            evidence=[
                count_figure("threads of the ranks of the host", host.num_threads),
                count_figure("cores of the host", host.cores),
                count_figure("cores in use, on average", round(host.cpu[1], 2)),
                share_figure("compute, as a share of the step", share),
            ],
            # How an operation speeds up with threads is not recorded.
            predicted_step_ns=None,
            interval_ns=None,
            gain_pct=None,
            gain_interval_pct=None,
            confidence="low",
            action=f"Try {num_threads} threads per rank, by the variable or by"
            f" torch.set_num_threads({num_threads}), and compare the runs with augury diff.",
            command=f"OMP_NUM_THREADS={num_threads}",
        )
    ]


def _advised(host: HostThreads) -> int:
    """Half of the cores: two logical cores may be one physical core."""
    return max(1, host.cores // 2 // len(host.rows))


def _has_idle_cores(host: HostThreads) -> bool:
    if host.cpu is None or host.num_threads >= _MOST_BUSY * host.cores:
        return False
    own, whole = host.cpu
    return (
        _advised(host) * len(host.rows) > host.num_threads
        and whole < _MOST_BUSY * host.cores
        and whole - own <= _MOST_OTHER * host.cores
    )


def _reason(run: ExaminedRun) -> str:
    if run.is_on_devices:
        return "host threads only launch work of devices"
    if run.trace is None or not _are_known(run.trace):
        return "the recording has no numbers of threads, or no use of the machine's cores"
    return ""


def _are_known(trace: Trace) -> bool:
    return any(host.cpu is not None for host in host_threads(trace)) and bool(delays_of(trace))


FEW_THREADS = Detector(kinds=(TOO_FEW_THREADS,), reason_against=_reason, examine=_examine)
