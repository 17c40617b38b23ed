"""Step times of a run's ranks, inside and outside of windows, from their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.enums import StepState
from augury.core.measured_step import median_ns, over_ranks
from augury.core.trace.step_states import step_starts, step_states
from augury.costs.prediction_interval import Representation, representation

if TYPE_CHECKING:
    from augury.core.trace.rank_record import RankHeader


def durations_in(record: RankHeader, state: StepState) -> tuple[I4, I8]:
    """Returns numbers and durations of a rank's steps in this state. Steps of a trial, in which
    training modes alternate, do not count."""
    windows = [
        (
            window.first,
            window.last,
            StepState.DISTURBED
            if window.trace is None
            else StepState.DETAILED
            if window.is_detailed
            else StepState.TIMED,
        )
        for window in record.windows
    ]
    size = len(record.step_end_ns)
    states = step_states(size, windows, [step for step, _ in record.resumed])
    ends = np.array(record.step_end_ns, dtype=np.int64)
    dur_ns = ends - step_starts(record.step_end_ns, record.resumed)
    first = (record.plan.settled_step if record.plan else None) or 0
    is_settled = np.arange(1, size + 1) >= first
    chosen = np.flatnonzero((states == state) & (dur_ns > 0) & is_settled)
    return (chosen + 1).astype(np.int32), dur_ns[chosen]


def typical_ns(record: RankHeader, state: StepState) -> int | None:
    _, dur_ns = durations_in(record, state)
    return median_ns(dur_ns)


def representation_of(records: Sequence[RankHeader]) -> Representation | None:
    """Returns how well the windows represent the run; None without recorded steps."""
    recorded_step, recorded_ns = _over_ranks(records, StepState.TIMED)
    if not len(recorded_step):
        return None
    return representation(recorded_step, recorded_ns, *_over_ranks(records, StepState.PLAIN))


def _over_ranks(records: Sequence[RankHeader], state: StepState) -> tuple[I4, NDArray[np.float64]]:
    each = [durations_in(record, state) for record in records]
    rank = [np.full(len(step), i, dtype=np.int32) for i, (step, _) in enumerate(each)]
    return over_ranks(
        np.concatenate(rank),
        np.concatenate([step for step, _ in each]),
        np.concatenate([dur_ns for _, dur_ns in each]),
    )
