"""The measured step of a run and its 90 % interval.

The duration of a step is the mean over the ranks: a rank may be ahead in one step and behind in the
next. If ranks never wait for each other, it is that of the slowest rank. The measured step is the
median over the steps that were not recorded (plain steps).

Steps of a run are not independent: the speed of a machine drifts. The interval comes from batch
means: the run is divided into segments of successive steps, and the medians of the segments show
the variation of the level. There are few segments, so quantiles are Student's. One or two outlying
segments (warm-up, a disturbance) do not move the measured step, which is a median, and count only
in part for its error: the highest and the lowest fifth of the segments are replaced by the next
ones inwards (winsorized, as for Yuen's test of trimmed means). Recorded windows, which are not the
whole run, count in full.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.enums import Role, StepState
from augury.core.errors import InputError
from augury.core.graph.graph import Graph, MeasuredSteps
from augury.core.trace.trace import CpuUse, Steps, Trace

MAX_SEGMENTS = 10
MIN_SEGMENT_STEPS = 8

PRIOR_DRIFT = 0.02
"""Usual relative standard deviation between the medians of segments of one run."""
PRIOR_FREEDOM = 2
"""Number of segments that the prior counts for if the run's own segments differ by less."""

_WINSORIZED = {5: 0.346, 6: 0.456, 7: 0.525, 8: 0.585, 9: 0.630, 10: 0.383}
"""By number of segments: variance of normal values of which the highest and the lowest fifth,
rounded down, are winsorized, over their variance without that."""

MAX_WINDOW_SHIFT = 0.05
"""Windows represent a run if they differ from it by less than this share."""

_NORMAL = 1.6449
_STUDENT = {1: 6.3138, 2: 2.9200, 3: 2.3534, 4: 2.1318, 5: 2.0150, 6: 1.9432, 8: 1.8595, 10: 1.8125}
_STUDENT |= {15: 1.7531, 20: 1.7247, 30: 1.6973, 60: 1.6706, 120: 1.6577}
"""95 % quantiles of Student's distribution by degrees of freedom; 90 % lies within them."""


class StepLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The typical value of a series of durations, and how well it is known."""

    value_ns: float
    """The median."""
    num_steps: int
    error: float
    """Relative standard error of the median."""
    freedom: float
    """Degrees of freedom of that error."""
    drift: float
    """Relative standard deviation of the level between segments, without the chance within
    segments."""

    @property
    def interval_ns(self) -> tuple[int, int]:
        """90 % interval."""
        reach = math.exp(min(50.0, student(self.freedom) * self.error))
        return round(self.value_ns / reach), round(self.value_ns * reach)


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The measured step of a run. ``low_ns`` to ``high_ns`` is its 90 % interval within the run;
    another run of the same job may differ by more (``drift_pct``)."""

    num_ranks: int
    num_steps: int
    step_ns: int
    low_ns: int
    high_ns: int
    drift_pct: float = 0.0
    """Standard deviation of the level within the run."""
    recorded_step_ns: int | None = None
    """Median step inside windows for timing."""
    delay_pct: float | None = None
    """Share of the plain steps for which training threads had no core."""
    other_load: float | None = None
    """Number of cores that other processes used on the busiest machine."""

    @property
    def noise(self) -> float:
        """Half of the interval's width, relative to the step."""
        return (self.high_ns - self.low_ns) / 2 / max(1, self.step_ns)


def measured_run(trace: Trace) -> MeasuredRun:
    """Measures plain steps, or timed ones if there are none."""
    steps = trace.steps
    rows = np.flatnonzero(counted_rows(trace))
    if not len(rows):
        raise InputError("the run has no step to compare", remedy="let the job take more steps")
    step, dur_ns = counted_steps(trace)
    if not len(dur_ns):
        raise InputError(
            "no step was recorded on all ranks", remedy="record all ranks, and more of their steps"
        )
    found = level(step, dur_ns)
    low_ns, high_ns = found.interval_ns
    return MeasuredRun(
        num_ranks=len(np.unique(steps.rank[rows])),
        num_steps=len(dur_ns),
        step_ns=max(1, round(found.value_ns)),
        low_ns=low_ns,
        high_ns=high_ns,
        drift_pct=round(100 * found.drift, 4),
        recorded_step_ns=_recorded_ns(steps),
        delay_pct=_delay_pct(steps, rows),
        other_load=other_load(trace),
    )


def counted_rows(trace: Trace) -> NDArray[np.bool_]:
    """Marks the plain steps, or the timed ones if none is plain. Steps of a trial, which alternate
    between modes of training, and steps before the plan was followed do not count."""
    steps = trace.steps
    counted = (steps.step >= first_counted_step(trace)) & (steps.end_ns > steps.start_ns)
    plain: NDArray[np.bool_] = counted & (steps.state == StepState.PLAIN)
    return plain if plain.any() else counted & (steps.state == StepState.TIMED)


def counted_steps(trace: Trace) -> tuple[I4, NDArray[np.float64]]:
    """Returns the numbers and durations of the counted steps that all ranks recorded."""
    steps, rows = trace.steps, np.flatnonzero(counted_rows(trace))
    own = steps.end_ns[rows] - steps.start_ns[rows]
    return over_ranks(steps.rank[rows], steps.step[rows], own)


def first_counted_step(trace: Trace) -> int:
    """Returns the first step in the final mode of training."""
    first = 0
    for plan in (facts.plan for facts in trace.ranks if facts.plan is not None):
        if plan.settled_step is not None:
            first = max(first, plan.settled_step)
        else:
            first = max([first, plan.from_step or 0, *(t.last_step + 1 for t in plan.trials)])
    return first


def other_load(trace: Trace) -> float | None:
    """Returns the number of cores that processes other than the ranks used, on the machine where
    that is highest; None if unknown."""
    machines: dict[str, list[CpuUse]] = {}
    for facts in trace.ranks:
        if facts.cpu_use is None:
            return None
        machines.setdefault(facts.host, []).append(facts.cpu_use)
    loads = [
        max(one.machine_ns / one.wall_ns for one in own)
        - sum(one.process_ns / one.wall_ns for one in own)
        for own in machines.values()
    ]
    return round(max(0.0, *loads), 4) if loads else None


def worker_steps(graph: Graph) -> MeasuredSteps:
    """Returns the measured steps without those of parameter servers."""
    measured = graph.measured
    keep = graph.ranks.role[measured.rank] == Role.WORKER
    return MeasuredSteps(**{name: values[keep] for name, values in measured.columns()})


def measured_step_ns(graph: Graph) -> int | None:
    """Returns the measured step of a graph's run, or None if nothing was measured."""
    return median_ns(measured_steps(graph)[1])


def measured_steps(graph: Graph) -> tuple[I4, NDArray[np.float64]]:
    """Returns the numbers and durations of the steps that were measured on all workers."""
    measured = worker_steps(graph)
    return over_ranks(measured.rank, measured.step, measured.dur_ns)


def median_ns(dur_ns: NDArray[np.number]) -> int | None:
    """Returns the median step: one disturbed step does not represent the others."""
    return round(float(np.median(dur_ns))) if len(dur_ns) else None


def over_ranks(rank: I4, step: I4, dur_ns: I8) -> tuple[I4, NDArray[np.float64]]:
    """Returns the steps that all ranks recorded, in order, and their durations: means over the
    ranks. If ranks drift apart by more than a single step explains, they do not wait for each
    other, and durations are scaled up to the slowest rank."""
    num_ranks = len(np.unique(rank))
    steps, place, count = np.unique(step, return_inverse=True, return_counts=True)
    whole = count == num_ranks
    if not whole.any():
        return steps[:0], np.zeros(0)
    seen = whole[place]
    means = np.bincount(place, weights=dur_ns, minlength=len(steps)) / num_ranks
    ahead = dur_ns[seen] - means[place[seen]]
    behind_ns = np.bincount(rank[seen], weights=ahead).max()
    if behind_ns > np.abs(ahead).max(initial=0) * (1 + 1e-9):
        means = means * (1 + behind_ns / means[whole].sum())
    return steps[whole], means[whole]


def level(step: I4, dur_ns: NDArray[np.number]) -> StepLevel:
    """Returns the level of durations, whose steps are divided into segments of equal length."""
    return level_of([dur_ns[part] for part in run_segments(step)], winsorize=True)


def run_segments(step: I4) -> list[NDArray[np.intp]]:
    """Returns the indices of the steps of each segment of a run, by step number."""
    order = np.argsort(step, kind="stable")
    number = int(np.clip(len(order) // MIN_SEGMENT_STEPS, 1, MAX_SEGMENTS))
    return np.array_split(order, number)


def level_of_windows(step: I4, dur_ns: NDArray[np.number]) -> StepLevel:
    """Returns the level of steps recorded in windows; each run of successive steps is a segment."""
    order = np.argsort(step, kind="stable")
    breaks = np.flatnonzero(np.diff(step[order]) > 1) + 1
    return level_of([dur_ns[part] for part in np.split(order, breaks)], winsorize=False)


def level_of(durations: list[NDArray[np.number]], *, winsorize: bool) -> StepLevel:
    """Returns the level of segments of durations. ``winsorize`` tolerates outliers: a fifth of at
    most ``MAX_SEGMENTS`` segments on either side."""
    positive = [part[part > 0].astype(np.float64) for part in durations]
    segments = [np.log(part) for part in positive if len(part)]
    if not segments:
        return StepLevel(value_ns=0.0, num_steps=0, error=0.0, freedom=PRIOR_FREEDOM, drift=0.0)
    every = np.concatenate(segments)
    number = len(segments)
    spread = np.array([_spread(part) for part in segments])
    sizes = np.array([len(part) for part in segments])
    chance = _error_of_median(float(np.sqrt(np.mean(spread**2))), float(sizes.mean()))
    # Variance between segments: drift, and chance within each of them.
    seen, own_freedom = _variance([float(np.median(part)) for part in segments], winsorize)
    usual = PRIOR_DRIFT**2 + chance**2
    between, freedom = seen, float(own_freedom)
    if seen < usual:
        # Few segments may agree by chance.
        freedom += PRIOR_FREEDOM
        between = (own_freedom * seen + PRIOR_FREEDOM * usual) / freedom
    drift = max(0.0, between - chance**2)
    return StepLevel(
        value_ns=math.exp(float(np.median(every))),
        num_steps=len(every),
        # The median of levels that drift varies more than their mean.
        error=math.sqrt((between - drift + math.pi / 2 * drift) / number),
        freedom=freedom,
        drift=math.sqrt(drift),
    )


def student(freedom: float) -> float:
    """Returns half the width of a 90 % interval in standard errors."""
    if freedom <= 1:
        return _STUDENT[1]
    known = sorted(_STUDENT)
    inverse = [0.0, *(1 / one for one in reversed(known))]
    return float(
        np.interp(1 / freedom, inverse, [_NORMAL, *(_STUDENT[o] for o in reversed(known))])
    )


def _variance(values: list[float], winsorize: bool) -> tuple[float, int]:
    """Returns the variance and its degrees of freedom."""
    number = len(values)
    if number < 2:
        return 0.0, 0
    ordered, cut = np.sort(values), number // 5 if winsorize else 0
    inner = np.clip(ordered, ordered[cut], ordered[-1 - cut])
    share = _WINSORIZED[number] if cut else 1.0
    return float(np.var(inner, ddof=1)) / share, number - 2 * cut - 1


def _spread(values: NDArray[np.float64]) -> float:
    """Returns a standard deviation that is robust against outliers."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _error_of_median(spread: float, number: float) -> float:
    return 1.2533 * spread / math.sqrt(number) if number else 0.0


def _recorded_ns(steps: Steps) -> int | None:
    rows = np.flatnonzero(steps.state == StepState.TIMED)
    own = steps.end_ns[rows] - steps.start_ns[rows]
    return median_ns(over_ranks(steps.rank[rows], steps.step[rows], own)[1])


def _delay_pct(steps: Steps, rows: NDArray[np.intp]) -> float | None:
    known = rows[steps.delay_ns[rows] >= 0]
    if not len(known):
        return None
    own_ns = steps.end_ns[known] - steps.start_ns[known]
    return round(100 * float(np.minimum(steps.delay_ns[known], own_ns).sum() / own_ns.sum()), 4)
