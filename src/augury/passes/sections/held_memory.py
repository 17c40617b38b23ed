"""Changes of the memory buffers of a graph: sizes, lifetimes, and buffers that are added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from augury.core.columns import I4, I8
from augury.core.enums import MemoryKind
from augury.core.graph.graph import NONE, Buffers
from augury.passes.protocol import Scene
from augury.passes.sections.step_structure import Mask

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


OF_BATCH = (MemoryKind.ACTIVATION, MemoryKind.WORKSPACE)
"""Kinds of memory that follow the size of a batch and the precision of forward."""


class NewBuffer(NamedTuple):
    """A row of Buffers."""

    rank: int
    size_bytes: int
    kind: MemoryKind
    taken_by: int
    given_by: int
    layer: int = NONE


def of_kind(scene: Scene, *kinds: MemoryKind) -> Mask:
    """Marks the buffers of these kinds."""
    return np.isin(scene.graph.buffers.kind, kinds)


def by_layer(scene: Scene, value_of: Callable[[str], float]) -> Floats:
    """Returns a value for each buffer, by its layer; the name of an unknown layer is empty."""
    strings, layers = scene.graph.strings, scene.graph.buffers.layer
    distinct, place = np.unique(layers, return_inverse=True)
    values = [value_of(strings[layer] if layer != NONE else "") for layer in distinct.tolist()]
    return np.array(values, dtype=np.float64)[place.reshape(-1)]


def with_sizes(scene: Scene, factors: Floats) -> Scene:
    """Multiplies the sizes of buffers; a part of a byte counts as one."""
    size_bytes = np.ceil(scene.graph.buffers.size_bytes * factors - 1e-6).astype(np.int64)
    return with_columns(scene, size_bytes=size_bytes)


def with_columns(scene: Scene, **columns: I4 | I8) -> Scene:
    """Replaces columns of the buffers."""
    buffers = Buffers(**dict(scene.graph.buffers.columns()) | columns)
    return replace(scene, graph=scene.graph.evolve(buffers=buffers))


def with_buffers(scene: Scene, rows: list[NewBuffer]) -> Scene:
    """Adds buffers, those without bytes left out."""
    rows = [row for row in rows if row.size_bytes > 0]
    if not rows:
        return scene
    old = dict(scene.graph.buffers.columns())
    new = {name: [getattr(row, name) for row in rows] for name in NewBuffer._fields}
    new["later"] = [0] * len(rows)
    return with_columns(
        scene, **{name: np.concatenate([old[name], np.array(new[name])]) for name in old}
    )
