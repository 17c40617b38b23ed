"""Cuts of an image into tiles with the least halo, and the size of the halos."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from augury.core.model import LayerKind, ModelLayer
from augury.oracle.layer_costs import LayerWork

MAX_EXTENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    cuts: tuple[int, ...]
    """Number of cuts along each extent, in the order of shapes: depth, height, width."""
    halo_items: float
    """Items per sample: halos of inputs and of gradients of outputs, towards one neighbour along
    each extent that is cut."""
    num_exchanges: int
    fits: bool


def tiling_of(work: LayerWork, num: int) -> Tiling:
    """Returns the tiling with the least halo and, among equals, the smallest largest cut."""
    known = work.remembered.get(("tiling", num))
    if isinstance(known, Tiling):
        return known
    smallest = _smallest(work)
    options = [cuts for cuts in _factorised(num, len(smallest)) if _within(cuts, smallest)]
    fits = bool(options)
    if not fits:
        options = [(1,) * (len(smallest) - 1) + (num,)]
    best = min(
        (_tiling(work, cuts, fits) for cuts in options),
        key=lambda one: (one.halo_items, max(one.cuts)),
    )
    work.remembered["tiling", num] = best
    return best


def max_tiles(work: LayerWork) -> int:
    return math.prod(_smallest(work))


def _tiling(work: LayerWork, cuts: tuple[int, ...], fits: bool) -> Tiling:
    items, exchanges = 0.0, 0
    for _, of_inputs, of_outputs in halos_of(work, cuts):
        items += of_inputs + of_outputs
        exchanges += 1
    return Tiling(cuts=cuts, halo_items=items, num_exchanges=exchanges, fits=fits)


def halos_of(work: LayerWork, cuts: tuple[int, ...]) -> Iterator[tuple[int, float, float]]:
    """Yields layers that exchange halos: index, items of inputs, items of gradients of outputs."""
    for place, layer in _windowed(work):
        of_inputs = _halo(layer.input_shape, layer.kernel, cuts)
        of_outputs = _halo(layer.output_shape, layer.kernel, cuts)
        if of_inputs + of_outputs > 0:
            yield place, of_inputs, of_outputs


def _halo(shape: tuple[int, ...], kernel: tuple[int, ...], cuts: tuple[int, ...]) -> float:
    extents = shape[1:]
    if len(extents) != len(cuts) or len(kernel) != len(cuts):
        return 0.0
    whole = float(math.prod(shape)) / math.prod(cuts)
    return sum(
        (size // 2) * whole / (extent / cut)
        for size, extent, cut in zip(kernel, extents, cuts, strict=True)
        if cut > 1 and extent > 0
    )


def _windowed(work: LayerWork) -> Iterator[tuple[int, ModelLayer]]:
    kinds = (LayerKind.CONVOLUTION, LayerKind.POOLING)
    for place, layer in enumerate(work.model.layers):
        if layer.kind in kinds and any(size > 1 for size in layer.kernel):
            yield place, layer


def _smallest(work: LayerWork) -> tuple[int, ...]:
    """Smallest extents of a convolution's output; without convolutions the image is one tile."""
    known = work.remembered.get("smallest image")
    if isinstance(known, tuple):
        return known
    convolved = [
        layer.output_shape[1:]
        for layer in work.model.layers
        if layer.kind is LayerKind.CONVOLUTION and 1 <= len(layer.output_shape) - 1 <= MAX_EXTENTS
    ]
    num = max((len(extents) for extents in convolved), default=1)
    alike = [extents for extents in convolved if len(extents) == num] or [(1,) * num]
    found = tuple(min(extents[i] for extents in alike) for i in range(num))
    work.remembered["smallest image"] = found
    return found


def _within(cuts: tuple[int, ...], extents: tuple[int, ...]) -> bool:
    return all(cut <= extent for cut, extent in zip(cuts, extents, strict=True))


def _factorised(num: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (num,)
        return
    for first in range(1, num + 1):
        if num % first == 0:
            for rest in _factorised(num // first, parts - 1):
                yield (first, *rest)
