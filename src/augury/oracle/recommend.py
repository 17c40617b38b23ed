"""Recommendation of a strategy, with its margin and confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from augury.oracle.feasibility import Judged
from augury.oracle.fitting.held_out import Z_90
from augury.oracle.uncertainty import common_spread, own_spread

MAX_CONFIDENCE = 0.99
"""Upper limit of the confidence in the order of two predictions."""
ALIKE = 0.01
"""Relative difference within which the strategy listed first, the simplest, is chosen."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Choice for one number of devices. ``sample_s`` makes batches of different size
    comparable."""

    devices: int
    strategy: str
    place: int
    """Index of the strategy in the sweep; ``index`` is that of the configuration."""
    index: int
    step_s: float
    sample_s: float
    alike: tuple[str, ...]
    """Other strategies that are equally fast."""
    runner_up: str | None
    """Fastest strategy that is not equally fast."""
    margin_pct: float | None
    """Extra time of the runner-up."""
    confidence_pct: float | None
    """Probability that the runner-up takes longer."""


def recommend_each(judged: Sequence[Judged]) -> list[Choice | None]:
    """Returns the fastest feasible strategy for each number of devices, or None."""
    return [_choose(judged, index) for index in range(len(judged[0].step_s))] if judged else []


def recommend(judged: Sequence[Judged]) -> Choice | None:
    """Returns the fastest choice of all; among equals the one with fewer devices."""
    choices = [choice for choice in recommend_each(judged) if choice is not None]
    return min(choices, key=lambda choice: (choice.sample_s, choice.devices), default=None)


def interval_s(judged: Judged, index: int) -> tuple[float, float]:
    """Returns the 90 % interval of the step."""
    spread = math.hypot(own_spread(judged, index), common_spread(judged.case))
    step_s, factor = float(judged.step_s[index]), math.exp(Z_90 * spread)
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
        confidence_pct = 100 * _confidence(best, judged[second], index, second_s / sample_s)
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


def _confidence(best: Judged, second: Judged, index: int, ratio: float) -> float:
    """Probability that ``best`` is faster. Errors of two strategies are taken as independent, which
    is conservative; the uncertain speed of the devices affects both alike."""
    spread = math.hypot(own_spread(best, index), own_spread(second, index))
    if spread == 0:
        return MAX_CONFIDENCE
    return min(MAX_CONFIDENCE, 0.5 * (1 + math.erf(math.log(ratio) / (spread * math.sqrt(2)))))
