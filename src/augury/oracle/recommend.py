"""Which strategy, by how much, and how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from augury.oracle.feasibility import Judged
from augury.oracle.fitting.held_out import SURE_Z
from augury.oracle.uncertainty import common_spread, own_spread

MOST_SURE = 0.99
"""No comparison of two predictions is surer."""
ALIKE = 0.01
"""Of strategies this close the plainest is chosen: the one that is listed first."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Of one number of devices. ``sample_s`` makes batches of different size comparable."""

    devices: int
    strategy: str
    place: int
    """Into the sweep's list, and ``index`` into its arrays."""
    index: int
    step_s: float
    sample_s: float
    alike: tuple[str, ...]
    """Others that are as fast."""
    runner_up: str | None
    """The fastest that is not."""
    margin_pct: float | None
    """By how much the runner-up takes longer."""
    confidence_pct: float | None
    """How likely the runner-up really takes longer."""


def recommend_each(judged: Sequence[Judged]) -> list[Choice | None]:
    """For every number of devices the fastest feasible; None where there is none."""
    return [_choose(judged, index) for index in range(len(judged[0].step_s))] if judged else []


def recommend(judged: Sequence[Judged]) -> Choice | None:
    """The fastest of all; of equally fast ones that with fewer devices."""
    choices = [choice for choice in recommend_each(judged) if choice is not None]
    return min(choices, key=lambda choice: (choice.sample_s, choice.devices), default=None)


def interval_s(judged: Judged, index: int) -> tuple[float, float]:
    """Nine times in ten the step is within."""
    spread = math.hypot(own_spread(judged, index), common_spread(judged.case))
    step_s, factor = float(judged.step_s[index]), math.exp(SURE_Z * spread)
    return step_s / factor, step_s * factor


def _choose(judged: Sequence[Judged], index: int) -> Choice | None:
    found = sorted(
        (float(one.step_s[index] / one.case.batch[index]), place)
        for place, one in enumerate(judged)
        if one.feasible[index]
    )
    if not found:
        return None
    alike = [one for one in found if one[0] <= found[0][0] * (1 + ALIKE)]
    sample_s, place = min(alike, key=lambda one: one[1])
    best = judged[place]
    runner_up = margin_pct = confidence_pct = None
    if len(found) > len(alike):
        second_s, second = found[len(alike)]
        runner_up = judged[second].estimate.strategy
        margin_pct = 100 * (second_s / sample_s - 1)
        confidence_pct = 100 * _chance(best, judged[second], index, second_s / sample_s)
    return Choice(
        devices=int(best.case.devices[index]),
        strategy=best.estimate.strategy,
        place=place,
        index=index,
        step_s=float(best.step_s[index]),
        sample_s=sample_s,
        alike=tuple(judged[p].estimate.strategy for _, p in alike if p != place),
        runner_up=runner_up,
        margin_pct=margin_pct,
        confidence_pct=confidence_pct,
    )


def _chance(best: Judged, second: Judged, index: int, ratio: float) -> float:
    """Errors of two strategies are taken for independent, which is the cautious way; how fast the
    cluster's devices really are concerns both."""
    spread = math.hypot(own_spread(best, index), own_spread(second, index))
    if spread == 0:
        return MOST_SURE
    return min(MOST_SURE, 0.5 * (1 + math.erf(math.log(ratio) / (spread * math.sqrt(2)))))
