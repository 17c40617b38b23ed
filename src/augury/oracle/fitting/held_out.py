"""Calibration of intervals on rows that are held out of the fit.

Rows are held out in three ways: every other scale, a whole strategy, and all scales beyond 64
devices. Errors are logarithms of predicted over measured. Each spread is such that 90 % of the
held-out rows of its way are within ``Z_90`` times it; the rows that calibrate an interval do not
validate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from augury.core.columns import F8
from augury.oracle.fitting.corrections import Constants
from augury.oracle.fitting.measured_table import SERIAL, Row, every_other

Z_90 = 1.645
"""Standard deviations on each side that contain 90 %."""
COVERAGE = 0.9
SMALL_SCALE = 64
"""Number of devices up to which constants are fitted that are then compared beyond."""
MIN_SPREAD = 0.02
FEW_ROWS = 2


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
    """Spread within the fitted scales, by strategy."""
    unseen: float
    """Spread of a strategy that was never fitted."""
    beyond: float
    """Spread per doubling of the devices beyond the fitted ones."""


@dataclass(frozen=True, kw_only=True)
class HeldOutSplit:
    """Rows that are held out, and the others."""

    way: Way
    left_out: str
    tested: tuple[Row, ...]
    kept: tuple[Row, ...]

    def held_out(self, log_errors: F8) -> HeldOut:
        return HeldOut(
            way=self.way,
            left_out=self.left_out,
            rows=self.tested,
            log_errors=tuple(log_errors.tolist()),
        )


def held_out_splits(rows: Sequence[Row]) -> list[HeldOutSplit]:
    """Returns all ways to hold measured rows out. Those that leave too few rows to fit to are
    skipped."""
    found: list[HeldOutSplit] = []

    def add(way: Way, left_out: str, tested: Sequence[Row]) -> None:
        kept = tuple(row for row in rows if row not in tested)
        if min(len(kept), len(tested)) >= FEW_ROWS:
            found.append(HeldOutSplit(way=way, left_out=left_out, tested=tuple(tested), kept=kept))

    for start, name in ((0, "first"), (1, "second")):
        add(Way.SCALES, f"{name} half of the scales", every_other(list(rows), start))
    strategies = dict.fromkeys(row.strategy for row in rows if row.strategy != SERIAL)
    for strategy in strategies if len(strategies) > 1 else ():
        add(Way.STRATEGY, strategy, [row for row in rows if row.strategy == strategy])
    large = [row for row in rows if row.devices > SMALL_SCALE]
    add(Way.BEYOND, f"beyond {SMALL_SCALE} devices", large)
    return found


def spreads_of(found: Sequence[HeldOut]) -> Spreads:
    known = _known(found)
    unseen = _spread(_log_errors(found, Way.STRATEGY))
    return Spreads(
        known=known,
        # A strategy that was not fitted is never more certain than one that was.
        unseen=max([unseen, *known.values()]),
        beyond=_beyond(found, known),
    )


def num_covered(one: HeldOut, constants: Constants) -> int:
    """Number of held-out rows within the interval that these constants state for them."""
    covered = 0
    for row, error in zip(one.rows, one.log_errors, strict=True):
        spread = constants.spread_of(row.strategy)
        if one.way is Way.STRATEGY:
            spread = constants.unseen_spread
        if one.way is Way.BEYOND:
            beyond = constants.beyond_spread * doublings_beyond(row.devices, SMALL_SCALE)
            spread = float(np.hypot(spread, beyond))
        covered += abs(error) <= Z_90 * spread * (1 + 1e-9)
    return covered


def doublings_beyond(devices: float, max_devices: float) -> float:
    return max(0.0, float(np.log2(devices / max_devices))) if max_devices else 0.0


def _known(found: Sequence[HeldOut]) -> dict[str, float]:
    """Root mean square error by strategy, all scaled so that 90 % of all rows are within."""
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
    """Error beyond the known spread, per doubling."""
    per_doubling = []
    for one in found:
        if one.way is not Way.BEYOND:
            continue
        for row, error in zip(one.rows, one.log_errors, strict=True):
            rest = max(0.0, error**2 - (Z_90 * known.get(row.strategy, 0.0)) ** 2)
            per_doubling.append(rest**0.5 / doublings_beyond(row.devices, SMALL_SCALE))
    return _spread(per_doubling)


def _log_errors(found: Sequence[HeldOut], way: Way) -> list[float]:
    return [error for one in found if one.way is way for error in one.log_errors]


def _spread(errors: Sequence[float]) -> float:
    if not errors:
        return 0.0
    return float(np.quantile(np.abs(errors), COVERAGE, method="higher")) / Z_90
