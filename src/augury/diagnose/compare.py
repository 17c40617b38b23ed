"""Two runs of one job held against each other, and against what a Plan foretold of the change."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.errors import InputError
from augury.core.kinds import StepState
from augury.core.plan import Plan
from augury.core.trace import Steps, Trace

TOLERANCE = 0.05
"""A prediction that is no further off than this, or than the noise, came true."""

_TWO_SIDED = 1.96


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over its ranks of every step. ``low_ns`` to ``high_ns`` holds the median nineteen
    times of twenty, as far as the run's own steps tell."""

    num_ranks: int
    num_steps: int
    step_ns: int
    low_ns: int
    high_ns: int

    @property
    def noise(self) -> float:
        """Half of that width, as a share."""
        return (self.high_ns - self.low_ns) / 2 / max(1, self.step_ns)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """``predicted_step_ns`` is what the Plan promised as a share of its own baseline, taken of
    what was measured before: another day's machine may be faster or slower altogether."""

    before: MeasuredRun
    after: MeasuredRun
    gain_pct: float
    gain_interval_pct: tuple[float, float]
    policy: str | None = None
    predicted_step_ns: int | None = None
    predicted_gain_pct: float | None = None
    error_pct: float | None = None
    came_true: bool | None = None

    @property
    def is_told_apart(self) -> bool:
        """Whether the steps' own noise leaves the gain its sign."""
        low, high = self.gain_interval_pct
        return low > 0 or high < 0


def compare_runs(before: Trace, after: Trace, plan: Plan | None = None) -> Comparison:
    first, second = measured_run(before), measured_run(after)
    if first.num_ranks != second.num_ranks:
        raise InputError(
            f"the runs have {first.num_ranks} and {second.num_ranks} ranks",
            remedy="compare runs of the same job",
        )
    gain_pct = 100 * (1 - second.step_ns / first.step_ns)
    either_pct = 100 * second.step_ns / first.step_ns * float(np.hypot(first.noise, second.noise))
    found = Comparison(
        before=first,
        after=second,
        gain_pct=round(gain_pct, 4),
        gain_interval_pct=(round(gain_pct - either_pct, 4), round(gain_pct + either_pct, 4)),
    )
    return found if plan is None else _held_against(found, plan)


def measured_run(trace: Trace) -> MeasuredRun:
    """From steps that nobody watched, or, where there are none, from timed ones."""
    steps = trace.steps
    plain = steps.state == StepState.PLAIN
    rows = np.flatnonzero(plain if plain.any() else steps.state == StepState.TIMED)
    ranks = np.unique(steps.rank[rows])
    if not len(ranks):
        raise InputError("the run has no step to compare", remedy="let the job take more steps")
    dur_ns = _of_all_ranks(steps, rows, len(ranks))
    if not len(dur_ns):
        raise InputError(
            "no step was seen on all ranks", remedy="record all ranks, and more of their steps"
        )
    low_ns, high_ns = _range_of_median(dur_ns)
    return MeasuredRun(
        num_ranks=len(ranks),
        num_steps=len(dur_ns),
        step_ns=max(1, round(float(np.median(dur_ns)))),
        low_ns=low_ns,
        high_ns=high_ns,
    )


def _of_all_ranks(steps: Steps, rows: NDArray[np.intp], num_ranks: int) -> NDArray[np.int64]:
    """Ranks that need not take turns are ahead now and behind then: none for long."""
    dur_ns = steps.end_ns[rows] - steps.start_ns[rows]
    _, place, count = np.unique(steps.step[rows], return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=dur_ns, minlength=len(count))
    means: NDArray[np.int64] = np.rint(sums[count == num_ranks] / num_ranks).astype(np.int64)
    return means


def _range_of_median(dur_ns: NDArray[np.int64]) -> tuple[int, int]:
    """Between two of the sorted steps, by their number alone: steps have no distribution that one
    could assume."""
    ordered = np.sort(dur_ns)
    reach = _TWO_SIDED * np.sqrt(len(ordered)) / 2
    middle = (len(ordered) - 1) / 2
    low = max(0, int(np.floor(middle - reach)))
    high = min(len(ordered) - 1, int(np.ceil(middle + reach)))
    return int(ordered[low]), int(ordered[high])


def _held_against(found: Comparison, plan: Plan) -> Comparison:
    if plan.foretold is None or plan.foretold.baseline_ns <= 0:
        raise InputError(
            "the plan foretells nothing", remedy="make it from the run before: augury schedule -o"
        )
    promised = plan.foretold.step_ns / plan.foretold.baseline_ns
    predicted_ns = found.before.step_ns * promised
    error = predicted_ns / found.after.step_ns - 1
    low, high = (
        edge / plan.foretold.baseline_ns * found.before.step_ns
        for edge in plan.foretold.interval_ns
    )
    noise = max(found.before.noise, found.after.noise)
    return msgspec.structs.replace(
        found,
        policy=plan.order.policy,
        predicted_step_ns=round(predicted_ns),
        predicted_gain_pct=round(100 * (1 - promised), 4),
        error_pct=round(100 * error, 4),
        came_true=abs(error) <= max(TOLERANCE, noise) or low <= found.after.step_ns <= high,
    )
