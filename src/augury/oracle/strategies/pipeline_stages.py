"""Cuts layers into pipeline stages so that the slowest stage takes the least time.

The number of micro-batches is chosen here as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategy import StrategyCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Maxima over stages; times and items are per sample, updates per step."""

    slowest_s: float
    update_s: float
    boundary_items: float
    parameters: float
    saved_items: float
    restart_items: float
    """Items held when recomputing: the input of a stage and one share of what it saves."""
    touched_items: float
    largest_items: float


def micro_batches(case: StrategyCase) -> F8:
    """Number of micro-batches: the stated one, or the most that divide the batch, up to four per
    stage."""
    stated = case.options.micro_batches
    if stated is not None:
        return np.full_like(case.devices, stated)
    wanted = np.minimum(case.batch, 4 * case.devices)
    known = case.work.remembered
    found = []
    for batch, most in zip(case.batch.tolist(), wanted.tolist(), strict=True):
        key = ("micro-batches", batch, most)
        number = known.get(key)
        if number is None:
            candidates = range(int(most), 0, -1)
            number = known[key] = float(next((n for n in candidates if batch % n == 0), 1))
        found.append(number)
    return np.array(found, float)


def stages_of(work: LayerWork, num: int) -> Stages:
    known = work.remembered.get(("stages", num))
    if isinstance(known, Stages):
        return known
    first = first_layers(work, num)

    def most(values: F8) -> float:
        return float(np.add.reduceat(values, first).max())

    touched = work.input_items + work.output_items
    saved, starts = np.add.reduceat(work.saved_items, first), work.input_items[first]
    found = Stages(
        # The published table adds the slowest forward and the slowest backward of any stages.
        slowest_s=most(work.forward_s) + most(work.backward_s),
        update_s=most(work.update_s),
        boundary_items=float(work.output_items[first[1:] - 1].max()) if len(first) > 1 else 0.0,
        parameters=most(work.parameters),
        saved_items=float(saved.max()),
        restart_items=float((starts + saved / max(1, num)).max()),
        touched_items=most(touched),
        largest_items=float(touched.max()),
    )
    work.remembered["stages", num] = found
    return found


def first_layers(work: LayerWork, num: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns the first layer of each stage: bisection over the time of the slowest stage, with
    stages filled greedily."""
    seconds = work.forward_s + work.backward_s
    num = min(num, len(seconds))
    upto = np.concatenate(([0.0], np.cumsum(seconds)))
    low, high = float(seconds.max()), float(upto[-1])
    best = _filled(upto, high)
    for _ in range(50):
        middle = (low + high) / 2
        found = _filled(upto, middle * (1 + 1e-12))
        if len(found) <= num:
            best, high = found, middle
        else:
            low = middle
    # Fewer stages than devices: halve the longest ones, which slows none down.
    while len(best) < num:
        widths = np.diff([*best, len(seconds)])
        longest = int(np.argmax(widths))
        best.insert(longest + 1, best[longest] + int(widths[longest]) // 2)
    return np.array(best, np.int64)


def _filled(upto: F8, limit: float) -> list[int]:
    first, end = [0], len(upto) - 1
    while True:
        fits = int(np.searchsorted(upto, upto[first[-1]] + limit, side="right")) - 1
        upcoming = max(fits, first[-1] + 1)
        if upcoming >= end:
            return first
        first.append(upcoming)
