"""How far predictions miss what they were not fitted on, and how wide intervals must be for that.

Three ways to hold out: every other scale, a whole strategy, and all scales beyond 64 devices.
Errors are logarithms of predicted over measured. Each spread is such that nine in ten of the
held-out rows of its way lie within ``SURE_Z`` times it; rows that calibrate a width are no proof
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from augury.core.columns import F8
from augury.oracle.fitting.corrections import Constants
from augury.oracle.fitting.measured_table import SERIAL, Row, every_other

SURE_Z = 1.645
"""Standard deviations that hold nine in ten."""
NINE_OF_TEN = 0.9
SMALL_SCALE = 64
"""Devices up to which constants are fitted that are then compared beyond."""
MIN_SPREAD = 0.02
FEW_ROWS = 2

Fit = Callable[[Sequence[Row]], Constants]
Errors = Callable[[Sequence[Row], Constants], F8]


class Way(StrEnum):
    SCALES = "every other scale"
    STRATEGY = "a strategy"
    BEYOND = "larger scales"


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    way: Way
    left_out: str
    rows: tuple[Row, ...]
    log_errors: tuple[float, ...]

    @property
    def accuracy_pct(self) -> float:
        return float(np.mean([100 - 100 * abs(np.expm1(error)) for error in self.log_errors]))


@dataclass(frozen=True, kw_only=True)
class Spreads:
    """Standard deviations of logarithms of predicted times."""

    known: dict[str, float]
    """By strategy, at scales within those that were fitted."""
    unseen: float
    """Of a strategy that was never fitted."""
    beyond: float
    """Per doubling of the devices beyond those that were fitted."""


def hold_out(rows: Sequence[Row], fit: Fit, errors: Errors) -> list[HeldOut]:
    """``rows`` are measured. Ways that would leave too little to fit on are left out."""
    found: list[HeldOut] = []

    def compare(way: Way, left_out: str, tested: Sequence[Row]) -> None:
        kept = [row for row in rows if row not in tested]
        if min(len(kept), len(tested)) >= FEW_ROWS:
            found.append(
                HeldOut(
                    way=way,
                    left_out=left_out,
                    rows=tuple(tested),
                    log_errors=tuple(errors(tested, fit(kept)).tolist()),
                )
            )

    for start, name in ((0, "first"), (1, "second")):
        compare(Way.SCALES, f"{name} half of the scales", every_other(list(rows), start))
    strategies = dict.fromkeys(row.strategy for row in rows if row.strategy != SERIAL)
    for strategy in strategies if len(strategies) > 1 else ():
        compare(Way.STRATEGY, strategy, [row for row in rows if row.strategy == strategy])
    large = [row for row in rows if row.devices > SMALL_SCALE]
    compare(Way.BEYOND, f"beyond {SMALL_SCALE} devices", large)
    return found


def spreads_of(found: Sequence[HeldOut]) -> Spreads:
    known = _known(found)
    unseen = _spread(_log_errors(found, Way.STRATEGY))
    return Spreads(
        known=known,
        # Never surer of what was not seen than of what was.
        unseen=max([unseen, *known.values()]),
        beyond=_beyond(found, known),
    )


def num_covered(one: HeldOut, constants: Constants) -> int:
    """Held-out rows that lie within the interval that these constants state for such rows."""
    covered = 0
    for row, error in zip(one.rows, one.log_errors, strict=True):
        spread = constants.spread_of(row.strategy)
        if one.way is Way.STRATEGY:
            spread = constants.unseen_spread
        if one.way is Way.BEYOND:
            beyond = constants.beyond_spread * doublings_beyond(row.devices, SMALL_SCALE)
            spread = float(np.hypot(spread, beyond))
        covered += abs(error) <= SURE_Z * spread * (1 + 1e-9)
    return covered


def doublings_beyond(devices: float, max_devices: float) -> float:
    return max(0.0, float(np.log2(devices / max_devices))) if max_devices else 0.0


def _known(found: Sequence[HeldOut]) -> dict[str, float]:
    """By strategy what was missed at the median square, all scaled so that nine in ten of all rows
    are within."""
    missed: dict[str, list[float]] = {}
    for one in found:
        if one.way is Way.SCALES:
            for row, error in zip(one.rows, one.log_errors, strict=True):
                missed.setdefault(row.strategy, []).append(error)
    rough = {
        name: max(MIN_SPREAD, float(np.sqrt(np.mean(np.square(errors)))))
        for name, errors in missed.items()
    }
    scaled = [abs(error) / rough[name] for name, errors in missed.items() for error in errors]
    factor = max(1.0, _spread(scaled)) if scaled else 1.0
    return {name: factor * value for name, value in rough.items()}


def _beyond(found: Sequence[HeldOut], known: dict[str, float]) -> float:
    """What is missed beyond the known spread, per doubling."""
    per_doubling = []
    for one in found:
        if one.way is not Way.BEYOND:
            continue
        for row, error in zip(one.rows, one.log_errors, strict=True):
            rest = max(0.0, error**2 - (SURE_Z * known.get(row.strategy, 0.0)) ** 2)
            per_doubling.append(rest**0.5 / doublings_beyond(row.devices, SMALL_SCALE))
    return _spread(per_doubling)


def _log_errors(found: Sequence[HeldOut], way: Way) -> list[float]:
    return [error for one in found if one.way is way for error in one.log_errors]


def _spread(errors: Sequence[float]) -> float:
    if not errors:
        return 0.0
    return float(np.quantile(np.abs(errors), NINE_OF_TEN, method="higher")) / SURE_Z
