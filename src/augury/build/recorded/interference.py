"""Interference between compute and communication of a rank, and work without interference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, StepState
from augury.core.time_intervals import Interval, IntervalSet
from augury.core.trace.trace import Calibration, Trace

SLOWEST_RATE = 0.25
"""Lower limit of estimated rates."""
SMALL_BYTES = 4096
"""Transfers of fewer bytes are a few packets: their time is latency, and waiting behind others."""
LARGE_BYTES = 1 << 20
"""Size from which bandwidth dominates the time of a transfer."""


def compute_rate(
    trace: Trace,
    rank: int,
    *,
    computing: Sequence[Interval],
    communicating: Sequence[Interval],
    transfer_ns: int,
    transfer_rate: float,
) -> float:
    """Returns the rate of a rank's compute during communication, as calibration has measured it.

    Without calibration it is estimated from processor time: the rank's other threads used some for
    ``transfer_ns`` of communication at full rate. During compute, communication runs at
    ``transfer_rate``, and takes that share from a main thread without a spare core. The kernel
    counts how long the main thread was runnable without a core: interference is at most that."""
    measured = calibrated_compute_rate(trace.calibration)
    if measured is not None and transfer_ns > 0:
        return measured
    steps = trace.steps
    used = _processors_used(trace, rank, transfer_ns)
    if used is None:
        return 1.0
    cores = _cores_of(trace, rank)
    rate = (cores - used * transfer_rate) / min(1.0, cores)
    counted = (steps.rank == rank) & (steps.state == StepState.TIMED) & (steps.delay_ns >= 0)
    table = np.array(computing, dtype=np.int64).reshape(-1, 2)
    overlap_ns = float(IntervalSet(communicating).within(table[:, 0], table[:, 1]).sum())
    if counted.any() and overlap_ns > 0:
        rate = max(rate, 1 - float(steps.delay_ns[counted].sum()) / overlap_ns)
    return float(np.clip(rate, SLOWEST_RATE, 1.0))


def calibrated_compute_rate(calibration: Sequence[Calibration]) -> float | None:
    """Returns the rate of compute during large collectives; None if it was not measured."""
    measured = [
        row.compute_rate
        for row in calibration
        if row.collective.upper() != OpKind.SEND.name
        and row.beside_compute
        and row.compute_rate
        and row.size_bytes >= LARGE_BYTES
    ]
    return float(np.clip(np.median(measured), SLOWEST_RATE, 1.0)) if measured else None


def overcommitment(
    trace: Trace, rank: int, *, compute: float, transfer: float, transfer_ns: int
) -> float:
    """Returns the factor by which compute and communication at these rates would exceed the rank's
    processors; 1 if they do not. Calibration measures both in short runs, and may not add up."""
    used = _processors_used(trace, rank, transfer_ns)
    if used is None or not trace.calibration:
        return 1.0
    cores = _cores_of(trace, rank)
    return max(1.0, (compute * min(1.0, cores) + min(used, cores) * transfer) / cores)


def communication_cpu_ns(trace: Trace, ranks: Sequence[int]) -> tuple[int, ...]:
    """Returns the time that communication can have taken from the main thread of each rank in the
    timed steps: the processor time of its other threads. A main thread that waits for its processor
    (a quota, other load) waits for that of communication at the same rate. Empty if a rank has not
    recorded it."""
    steps = trace.steps
    found = []
    for rank in ranks:
        seen = (steps.rank == rank) & (steps.state == StepState.TIMED) & (steps.helper_cpu_ns >= 0)
        seen &= (steps.cpu_ns > 0) & (steps.delay_ns >= 0)
        if not seen.any():
            return ()
        main_ns, delay_ns = int(steps.cpu_ns[seen].sum()), int(steps.delay_ns[seen].sum())
        found.append(round(int(steps.helper_cpu_ns[seen].sum()) * (1 + delay_ns / main_ns)))
    return tuple(found)


def _processors_used(trace: Trace, rank: int, transfer_ns: int) -> float | None:
    """Returns the processors that the rank's other threads use during communication at full rate;
    None if it was not recorded."""
    steps = trace.steps
    seen = (steps.rank == rank) & (steps.state == StepState.TIMED) & (steps.helper_cpu_ns >= 0)
    if not seen.any() or transfer_ns <= 0:
        return None
    return float(steps.helper_cpu_ns[seen].sum()) / transfer_ns


def _cores_of(trace: Trace, rank: int) -> float:
    """Returns the cores of a rank's share of its host; infinite if they were not recorded."""
    own = next((facts for facts in trace.ranks if facts.rank == rank), None)
    if own is None or own.cores < 1:
        return float("inf")
    sharing = sum(other.host == own.host for other in trace.ranks)
    # Fewer cores than ranks: each rank has cores of its own.
    return own.cores / sharing if own.cores >= sharing else float(own.cores)


def _collectives(trace: Trace) -> list[Calibration]:
    """Returns the calibrated collectives, without messages between two ranks."""
    return [row for row in trace.calibration if row.collective.upper() != OpKind.SEND.name]


def transfer_rate(trace: Trace) -> float:
    """Returns the rate of communication during compute, from calibration; 1 without it."""
    alone: dict[tuple[str, int], float] = {}
    overlapped: dict[tuple[str, int], float] = {}
    for row in _collectives(trace):
        if row.concurrent == 1 and row.size_bytes >= LARGE_BYTES and row.durations_ns:
            where = overlapped if row.beside_compute else alone
            where[row.collective, row.size_bytes] = float(np.median(row.durations_ns))
    ratios = [alone[key] / overlapped[key] for key in alone if overlapped.get(key)]
    return float(np.clip(np.median(ratios), SLOWEST_RATE, 1.0)) if ratios else 1.0


def compute_work_ns(start_ns: I8, end_ns: I8, communicating: IntervalSet, rate: float) -> I8:
    """Returns the work of compute: its duration with interference divided out."""
    overlapped = communicating.within(start_ns, end_ns)
    work_ns = np.rint((end_ns - start_ns) - overlapped * (1 - rate)).astype(np.int64)
    return np.maximum(work_ns, 0)


def transfer_work_ns(
    spans: Sequence[Interval],
    computing: IntervalSet,
    rate: float,
    *,
    at_once: int,
    is_small: Sequence[bool] = (),
) -> list[int]:
    """Returns the work of the transfers of one group. Overlapping transfers share the link;
    ``at_once`` of them progress at full rate together. Small ones have too few bytes to share it
    with others: they wait behind these."""
    times = np.unique(np.array(spans, dtype=np.int64).reshape(-1))
    middle_begin, middle_end = times[:-1], times[1:]
    places = [(int(np.searchsorted(times, a)), int(np.searchsorted(times, b))) for a, b in spans]
    small = list(is_small) or [False] * len(spans)
    count, count_small = np.zeros(len(middle_begin)), np.zeros(len(middle_begin))
    for (begin, end), is_one_small in zip(places, small, strict=True):
        (count_small if is_one_small else count)[begin:end] += 1
    overlapped = computing.within(middle_begin, middle_end)
    alone = (middle_end - middle_begin) - overlapped * (1 - rate)
    share = np.minimum(1.0, at_once / np.maximum(count, 1))
    small_share = np.minimum(1.0, at_once / np.maximum(count_small, 1)) * (count == 0)
    spent = np.concatenate([[0.0], np.cumsum(alone * share)])
    spent_by_small = np.concatenate([[0.0], np.cumsum(alone * small_share)])
    return [
        max(1, round(float(own[end] - own[begin])))
        for (begin, end), own in zip(
            places, (spent_by_small if one else spent for one in small), strict=True
        )
    ]
