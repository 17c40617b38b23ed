"""Peak memory of a device by kind, for arrays of configurations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.oracle.layer_costs import WEIGHT_BYTES, LayerWork
from augury.oracle.memory import HeldItems
from augury.oracle.strategy import StrategyCase


@dataclass(frozen=True, kw_only=True, eq=False)
class Peaks:
    """Points of a step at which the peak may be; the batch decides which of them it is. Items are
    per sample, gradients of the whole model."""

    kept: F8
    transient: F8
    gradient: F8

    @classmethod
    def of(cls, work: LayerWork) -> Peaks:
        known = work.remembered.get("peaks")
        if isinstance(known, Peaks):
            return known
        held = HeldItems.of(work.model)
        all_gradients = np.array([work.model.num_parameters])
        kept = np.concatenate([held.kept, held.kept, [0]]).astype(float)
        transient = np.concatenate([held.forward_transient, held.backward_transient, [0]])
        gradient = np.concatenate([np.zeros_like(held.gradient), held.gradient, all_gradients])
        highest = _highest(kept + transient, gradient.astype(float))
        found = cls(
            kept=kept[highest],
            transient=transient[highest].astype(float),
            gradient=gradient[highest].astype(float),
        )
        work.remembered["peaks"] = found
        return found


def memory_by_kind(
    case: StrategyCase,
    samples: F8,
    *,
    weights: F8 | float = 1.0,
    items: F8 | float = 1.0,
    is_exchanged: bool = False,
) -> dict[str, F8]:
    """Returns the memory at the peak. ``weights`` and ``items`` are the shares of parameters and of
    a sample's activations that a device holds; ``samples`` is the number in flight on it. Exchanged
    gradients are copied once, into messages."""
    work, options = case.work, case.options
    held = work.weight_bytes * weights + np.zeros_like(samples)
    item_bytes = work.precision.item_bytes
    reuse = case.constants.memory_reuse * item_bytes
    taken = samples * items
    if options.is_bare:
        return {
            "parameters": held,
            "gradients": held,
            "activations": 2 * reuse * taken * work.touched_items,
        }
    peaks = Peaks.of(work)
    memory = {
        "parameters": held,
        "optimizer": options.optimizer_copies * held,
        "input": 4 * taken * work.sample_items,
    }
    if is_exchanged:
        memory["messages"] = np.where(case.devices > 1, held, 0.0)
    if options.recompute:
        return memory | {
            "gradients": held,
            "activations": reuse * taken * restarted_items(work),
            "transient": item_bytes * taken * peaks.transient.max(),
        }
    kept, transient = reuse * peaks.kept, item_bytes * peaks.transient
    gradient = WEIGHT_BYTES * peaks.gradient
    at = ((kept + transient)[:, None] * taken + gradient[:, None] * weights).argmax(axis=0)
    return memory | {
        "gradients": gradient[at] * weights,
        "activations": kept[at] * taken,
        "transient": transient[at] * taken,
    }


def restarted_items(work: LayerWork) -> float:
    """Items per sample that are held when recomputing: the inputs of all segments and the largest
    segment; all items of a model with few layers."""
    known = work.remembered.get("segments")
    if not isinstance(known, float):
        num_segments = max(1, round(len(work.saved_items) ** 0.5))
        upto = np.cumsum(work.saved_items)
        edges = np.searchsorted(upto, upto[-1] * np.arange(1, num_segments) / num_segments)
        kept = float(work.input_items[np.unique(edges)].sum())
        largest = float(np.diff(np.concatenate(([0.0], upto[edges], upto[-1:]))).max())
        known = min(kept + largest, float(upto[-1]))
        work.remembered["segments"] = known
    return known


def _highest(slope: F8, start: F8) -> list[int]:
    """Indices of the lines ``start + slope x`` that are the highest for some x >= 0."""
    order = np.lexsort((-slope, -start))
    found: list[int] = []
    for line in order.tolist():
        if found and slope[line] <= slope[found[-1]]:
            continue
        while len(found) > 1 and _crossing(slope, start, found[-1], line) <= _crossing(
            slope, start, found[-2], found[-1]
        ):
            found.pop()
        found.append(line)
    return found


def _crossing(slope: F8, start: F8, flat: int, steep: int) -> float:
    return float((start[flat] - start[steep]) / (slope[steep] - slope[flat]))
