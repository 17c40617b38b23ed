"""The measured step of a run and its 90 % interval: the one place where they are computed.

A step is the mean over the ranks, for ranks that need not take turns are ahead now and behind
then; where ranks never wait for each other, it is the slowest rank's. The measured step is the
median over the steps that were not recorded (plain steps).

Steps of a run are not independent: a machine drifts. The interval comes from batch means: the run
is cut into stretches of successive steps, and the medians of the stretches tell how far the level
of the run varies. There are few of them, so quantiles are Student's. The measured step is a median,
which a stretch or two that are far off (a job that warms up, a disturbance) do not move: nor do
they count in full for its error. The highest and the lowest fifth of the stretches are counted as
the next ones inwards (winsorized, as for Yuen's test of trimmed means). Recorded windows, which are
not the whole run, count in full.
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

MAX_STRETCHES = 10
MIN_STRETCH_STEPS = 8

PRIOR_DRIFT = 0.02
"""Usual standard deviation, as a share, between the medians of stretches of one run."""
PRIOR_FREEDOM = 2
"""How many stretches that is worth where the run's own stretches differ by less."""

_WINSORIZED = {5: 0.346, 6: 0.456, 7: 0.525, 8: 0.585, 9: 0.630, 10: 0.383}
"""By how many stretches there are: the variance of normal values of which the highest and the
lowest fifth, rounded down, are winsorized, as a share of their own."""

APART = 0.05
"""Windows that differ by less than this share from the run represent it."""

_NORMAL = 1.6449
_STUDENT = {1: 6.3138, 2: 2.9200, 3: 2.3534, 4: 2.1318, 5: 2.0150, 6: 1.9432, 8: 1.8595, 10: 1.8125}
_STUDENT |= {15: 1.7531, 20: 1.7247, 30: 1.6973, 60: 1.6706, 120: 1.6577}
"""95 % quantiles of Student's distribution by degrees of freedom: 90 % lies within them."""


class StepLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The typical value of a series of durations, and how well it is known."""

    value_ns: float
    """The median."""
    num_steps: int
    error: float
    """Standard error of the median, as a share."""
    freedom: float
    """Degrees of freedom of that error."""
    drift: float
    """Standard deviation of the level from one stretch to another, as a share: what remains of
    their differences when chance within stretches is taken away."""

    @property
    def interval_ns(self) -> tuple[int, int]:
        """90 %."""
        reach = math.exp(min(50.0, student(self.freedom) * self.error))
        return round(self.value_ns / reach), round(self.value_ns * reach)


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The measured step of a run. ``low_ns`` to ``high_ns`` is its 90 % interval, as far as the
    run itself tells: another run of the same job may differ by more (``drift_pct``)."""

    num_ranks: int
    num_steps: int
    step_ns: int
    low_ns: int
    high_ns: int
    drift_pct: float = 0.0
    """How far the level varies within the run, as a standard deviation."""
    recorded_step_ns: int | None = None
    """The same of the steps inside windows for timing."""
    delay_pct: float | None = None
    """The share of the plain steps for which training threads found no free core."""
    other_load: float | None = None
    """Cores that other processes of the busiest machine used meanwhile."""

    @property
    def noise(self) -> float:
        """Half of the interval's width, as a share."""
        return (self.high_ns - self.low_ns) / 2 / max(1, self.step_ns)


def measured_run(trace: Trace) -> MeasuredRun:
    """From plain steps, or from timed ones where there are none."""
    steps = trace.steps
    rows = np.flatnonzero(judged_rows(trace))
    if not len(rows):
        raise InputError("the run has no step to compare", remedy="let the job take more steps")
    ranks, own = np.unique(steps.rank[rows]), steps.end_ns[rows] - steps.start_ns[rows]
    step, dur_ns = over_ranks(steps.rank[rows], steps.step[rows], own)
    if not len(dur_ns):
        raise InputError(
            "no step was seen on all ranks", remedy="record all ranks, and more of their steps"
        )
    found = level(step, dur_ns)
    low_ns, high_ns = found.interval_ns
    return MeasuredRun(
        num_ranks=len(ranks),
        num_steps=len(dur_ns),
        step_ns=max(1, round(found.value_ns)),
        low_ns=low_ns,
        high_ns=high_ns,
        drift_pct=round(100 * found.drift, 4),
        recorded_step_ns=_recorded_ns(steps),
        delay_pct=_delay_pct(steps, rows),
        other_load=other_load(trace),
    )


def judged_rows(trace: Trace) -> NDArray[np.bool_]:
    """Rows of the plain steps; of timed steps where no step was plain. Steps of a trial, in which
    modes of training alternate, do not count, nor those before a plan was followed."""
    steps = trace.steps
    counted = (steps.step >= first_judged_step(trace)) & (steps.end_ns > steps.start_ns)
    plain: NDArray[np.bool_] = counted & (steps.state == StepState.PLAIN)
    return plain if plain.any() else counted & (steps.state == StepState.TIMED)


def first_judged_step(trace: Trace) -> int:
    """The first step in the mode that the run kept."""
    first = 0
    for plan in (facts.plan for facts in trace.ranks if facts.plan is not None):
        if plan.settled_step is not None:
            first = max(first, plan.settled_step)
        else:
            first = max([first, plan.from_step or 0, *(t.last_step + 1 for t in plan.trials)])
    return first


def other_load(trace: Trace) -> float | None:
    """Cores that processes beside the ranks used, on the machine where that was most; None where
    it is not known."""
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
    """Measured steps without those of parameter servers."""
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
    """Steps that all ranks saw, in order, and how long each took: the mean over the ranks. Where
    ranks drift apart by more than a single step explains, they do not wait for each other, and it
    is that much longer as the slowest rank takes in the long run."""
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
    """Of durations in the order of their steps, cut into stretches of about equal length."""
    return level_of([dur_ns[part] for part in stretches_of(step)], winsorize=True)


def stretches_of(step: I4) -> list[NDArray[np.intp]]:
    """Places of the steps of each stretch, in the order of their numbers."""
    order = np.argsort(step, kind="stable")
    number = int(np.clip(len(order) // MIN_STRETCH_STEPS, 1, MAX_STRETCHES))
    return np.array_split(order, number)


def level_of_windows(step: I4, dur_ns: NDArray[np.number]) -> StepLevel:
    """Of steps recorded in windows: steps that follow each other are one stretch."""
    order = np.argsort(step, kind="stable")
    breaks = np.flatnonzero(np.diff(step[order]) > 1) + 1
    return level_of([dur_ns[part] for part in np.split(order, breaks)], winsorize=False)


def level_of(durations: list[NDArray[np.number]], *, winsorize: bool) -> StepLevel:
    """Of stretches that are each a list of durations. ``winsorize``: a fifth of at most
    ``MAX_STRETCHES`` stretches on either side may be far off."""
    positive = [part[part > 0].astype(np.float64) for part in durations]
    stretches = [np.log(part) for part in positive if len(part)]
    if not stretches:
        return StepLevel(value_ns=0.0, num_steps=0, error=0.0, freedom=PRIOR_FREEDOM, drift=0.0)
    every = np.concatenate(stretches)
    number = len(stretches)
    spread = np.array([_spread(part) for part in stretches])
    sizes = np.array([len(part) for part in stretches])
    chance = _error_of_median(float(np.sqrt(np.mean(spread**2))), float(sizes.mean()))
    # Between stretches: their drift and the chance within each of them.
    seen, own_freedom = _variance([float(np.median(part)) for part in stretches], winsorize)
    usual = PRIOR_DRIFT**2 + chance**2
    between, freedom = seen, float(own_freedom)
    if seen < usual:
        # Few stretches may agree by luck.
        freedom += PRIOR_FREEDOM
        between = (own_freedom * seen + PRIOR_FREEDOM * usual) / freedom
    drift = max(0.0, between - chance**2)
    return StepLevel(
        value_ns=math.exp(float(np.median(every))),
        num_steps=len(every),
        # Of levels that differ the median is taken, which varies more than their mean.
        error=math.sqrt((between - drift + math.pi / 2 * drift) / number),
        freedom=freedom,
        drift=math.sqrt(drift),
    )


def student(freedom: float) -> float:
    """Half the width, in standard errors, of an interval that holds 90 %."""
    if freedom <= 1:
        return _STUDENT[1]
    known = sorted(_STUDENT)
    inverse = [0.0, *(1 / one for one in reversed(known))]
    return float(
        np.interp(1 / freedom, inverse, [_NORMAL, *(_STUDENT[o] for o in reversed(known))])
    )


def _variance(values: list[float], winsorize: bool) -> tuple[float, int]:
    """With its degrees of freedom."""
    number = len(values)
    if number < 2:
        return 0.0, 0
    ordered, cut = np.sort(values), number // 5 if winsorize else 0
    inner = np.clip(ordered, ordered[cut], ordered[-1 - cut])
    share = _WINSORIZED[number] if cut else 1.0
    return float(np.var(inner, ddof=1)) / share, number - 2 * cut - 1


def _spread(values: NDArray[np.float64]) -> float:
    """A standard deviation that outliers do not move."""
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
