"""Where two outcomes of one program differ: bit by bit with two ranks, else by a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from tests.runtime.fuzz.execute import Outcome

TOLERANCE = 1e-9
"""Of the largest value of a tensor, where sums are taken in another order."""
ROUNDING = 1e-14
"""Of the largest value of all tensors: a gradient that is zero but for rounding errors, as of a
bias in front of a normalisation, has no digits to compare."""


def differences(stock: Outcome, planned: Outcome, *, is_exact: bool) -> Iterator[str]:
    if stock.error or planned.error:
        if _kind(stock.error) != _kind(planned.error):
            yield (
                f"stock ends with {stock.error or 'no error'!r} (step {stock.error_step}), "
                f"planned with {planned.error or 'no error'!r} (step {planned.error_step})"
            )
        return
    largest = _largest(stock.tensors)
    if len(stock.notes) != len(planned.notes):
        yield f"{len(stock.notes)} notes under stock, {len(planned.notes)} under the plan"
    for ours, theirs in zip(stock.notes, planned.notes, strict=False):
        where = f"step {ours[0]}: {ours[1]}"
        if ours[:2] != theirs[:2]:
            yield f"{where}, but step {theirs[0]}: {theirs[1]} under the plan"
            return
        yield from _compared(where, ours[2], theirs[2], is_exact, largest)
    yield from _compared("end", stock.tensors, planned.tensors, is_exact, largest)


def distance(stock: Outcome, other: Outcome) -> float:
    """Largest difference as a share of a tensor's largest value, with values that are rounding
    errors counted as in ``differences``; infinite where the two cannot be compared."""
    if stock.error or other.error or len(stock.notes) != len(other.notes):
        return math.inf
    floor = ROUNDING / TOLERANCE * _largest(stock.tensors)
    notes = [note[2] for note in stock.notes], [note[2] for note in other.notes]
    return max(_distance(*notes, floor), _distance(stock.tensors, other.tensors, floor))


def _distance(ours: Any, theirs: Any, floor: float) -> float:
    if isinstance(ours, float) and isinstance(theirs, float):
        ours, theirs = torch.tensor(ours), torch.tensor(theirs)
    if torch.is_tensor(ours) and torch.is_tensor(theirs):
        if not ours.is_floating_point() or ours.numel() == 0:
            return 0.0 if torch.equal(ours, theirs) else math.inf
        if ours.shape != theirs.shape or not torch.equal(ours.isfinite(), theirs.isfinite()):
            return math.inf
        ours, theirs = (value.double().nan_to_num(0.0, 0.0, 0.0) for value in (ours, theirs))
        off, largest = (ours - theirs).abs().max().item(), ours.abs().max().item()
        return off / max(largest, floor) if off else 0.0
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        pairs = [(ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list | tuple) and len(ours) == len(theirs):
        pairs = list(zip(ours, theirs, strict=True))
    else:
        return 0.0 if ours == theirs else math.inf
    return max((_distance(one, other, floor) for one, other in pairs), default=0.0)


def _kind(error: str) -> str:
    return error.partition(":")[0]


def _compared(
    where: str, ours: Any, theirs: Any, is_exact: bool, scale: float = 0.0
) -> Iterator[str]:
    if torch.is_tensor(ours) and torch.is_tensor(theirs):
        yield from _tensors(where, ours, theirs, is_exact, scale)
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            yield f"{where}: only in one: {sorted(map(str, ours.keys() ^ theirs.keys()))}"
        for key in ours.keys() & theirs.keys():
            yield from _compared(f"{where}: {key}", ours[key], theirs[key], is_exact, scale)
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            yield f"{where}: {len(ours)} and {len(theirs)} elements"
        for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _compared(f"{where}: {number}", one, other, is_exact, scale)
    elif isinstance(ours, float) and isinstance(theirs, float):
        pair = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
        yield from _tensors(where, *pair, is_exact, scale)
    elif ours != theirs:
        yield f"{where}: {_short(ours)} under stock, {_short(theirs)} under the plan"


def _tensors(where: str, ours: Any, theirs: Any, is_exact: bool, scale: float) -> Iterator[str]:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        yield f"{where}: {ours.dtype} {tuple(ours.shape)}, {theirs.dtype} {tuple(theirs.shape)}"
        return
    if is_exact or not ours.is_floating_point():
        if _bits_equal(ours, theirs):
            return
    elif ours.numel() == 0:
        return
    if not torch.equal(ours.isfinite(), theirs.isfinite()):
        yield f"{where}: other elements are finite"
        return
    ours, theirs = (value.double().nan_to_num(0.0, 0.0, 0.0) for value in (ours, theirs))
    off, largest = (ours - theirs).abs().max().item(), ours.abs().max().item()
    if is_exact or off > max(TOLERANCE * largest, ROUNDING * scale):
        yield f"{where}: differs by up to {off:.3g}, largest {largest:.3g}"


def _largest(value: Any) -> float:
    if torch.is_tensor(value):
        is_real = value.is_floating_point() and value.numel()
        return value.double().nan_to_num(0.0, 0.0, 0.0).abs().max().item() if is_real else 0.0
    return max(map(_largest, value.values()), default=0.0) if isinstance(value, dict) else 0.0


def _bits_equal(ours: Any, theirs: Any) -> bool:
    """NaNs of any payload are equal, zeros of other sign are not."""
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    same = (ours == theirs) & (ours.signbit() == theirs.signbit())
    return bool((same | (ours.isnan() & theirs.isnan())).all())


def _short(value: Any) -> str:
    if torch.is_tensor(value):
        return f"a tensor {tuple(value.shape)}"
    return repr(value)[:80]
