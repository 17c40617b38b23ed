"""First operations in which two graphs differ, from which a partial replay starts."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.graph import NONE, Graph

_TIMED = ("kind", "resource", "work_ns", "priority", "step")
"""Columns of operations that a replay depends on, apart from gangs."""


def touched_ops(old: Graph, new: Graph, new_op_of: I4) -> I4:
    """Returns the operations of ``new``, rising, that are new or whose work, place, gang or
    predecessors differ, those on a resource whose interference differs, and those next to a removed
    operation. A replay of ``new`` equals that of ``old`` up to the earliest time at which one of
    them is ready: before it, the same operations compete for the same resources."""
    is_touched = np.ones(new.num_ops, dtype=bool)
    kept = np.flatnonzero(new_op_of != NONE)
    now = new_op_of[kept]
    is_touched[now] = False
    if old.ops is not new.ops:
        for name in _TIMED:
            is_touched[now] |= getattr(old.ops, name)[kept] != getattr(new.ops, name)[now]
        is_touched[now] |= _gangs_differ(old, new, new_op_of, kept)
    if old.edges is not new.edges or len(kept) < old.num_ops:
        _touch_edges(is_touched, _pairs(old), _pairs(new), new_op_of)
        _touch_removed(is_touched, old, new, new_op_of)
    if old.carries is not new.carries:
        before = np.stack([old.carries.src, old.carries.dst])
        after = np.stack([new.carries.src, new.carries.dst])
        _touch_edges(is_touched, before, after, new_op_of)
    for resource in _resources_that_differ(old, new):
        is_touched |= new.ops.resource == resource
    return np.flatnonzero(is_touched).astype(np.int32)


def _pairs(graph: Graph) -> I4:
    return np.stack([graph.edges.sources(), graph.edges.dst])


def _touch_edges(is_touched: NDArray[np.bool_], before: I4, after: I4, new_op_of: I4) -> None:
    """Marks operations with an edge more or less."""
    src, dst = new_op_of[before[0]], new_op_of[before[1]]
    is_touched[dst[(src == NONE) & (dst != NONE)]] = True
    stays = (src != NONE) & (dst != NONE)
    old_keys, new_keys = _keys(src[stays], dst[stays]), _keys(after[0], after[1])
    differ = np.setxor1d(old_keys, new_keys, assume_unique=True)
    is_touched[differ & 0xFFFF_FFFF] = True


def _keys(src: I4, dst: I4) -> I8:
    """Returns edges as numbers, rising and each once. Edges of a graph are sorted already, which a
    stable sort uses; ``np.unique`` would hash them."""
    keys = np.sort((src.astype(np.int64) << 32) | dst, kind="stable")
    return np.asarray(keys[np.diff(keys, prepend=-1) != 0])


def _touch_removed(is_touched: NDArray[np.bool_], old: Graph, new: Graph, new_op_of: I4) -> None:
    """Marks the predecessors of removed operations: a resource that one of them held may be free
    as soon as they have ended. Without predecessors it was ready from the start."""
    removed = new_op_of == NONE
    if not removed.any():
        return
    src, dst = old.edges.sources(), old.edges.dst
    before = new_op_of[src[removed[dst]]]
    is_touched[before[before != NONE]] = True
    has_predecessor = np.zeros(old.num_ops, dtype=bool)
    has_predecessor[dst] = True
    if (removed & ~has_predecessor).any():
        is_root = np.ones(new.num_ops, dtype=bool)
        is_root[new.edges.dst] = False
        is_touched |= is_root


def _gangs_differ(old: Graph, new: Graph, new_op_of: I4, kept: I8) -> NDArray[np.bool_]:
    """Tells, of each kept operation, whether the members of its gang differ."""
    before, after = old.ops.gang[kept], new.ops.gang[new_op_of[kept]]
    differs = (before == NONE) != (after == NONE)
    own = np.flatnonzero((before != NONE) & (after != NONE))
    if not len(own):
        return np.asarray(differs)
    old_rows, new_rows = np.flatnonzero(old.ops.gang != NONE), np.flatnonzero(new.ops.gang != NONE)
    was = _members(old.ops.gang[old_rows], new_op_of[old_rows], old.num_gangs)
    now = _members(new.ops.gang[new_rows], new_rows, new.num_gangs)
    differs[own] |= (was[:, before[own]] != now[:, after[own]]).any(axis=0)
    return np.asarray(differs)


def _members(gang: I4, op: NDArray[np.integer], num_gangs: int) -> I8:
    """Number, sum and smallest index of the members of each gang: equal for equal members, and for
    others only if all three agree."""
    found = np.zeros((3, num_gangs), dtype=np.int64)
    found[2] = 1 << 40
    np.add.at(found[0], gang, 1)
    np.add.at(found[1], gang, op)
    np.minimum.at(found[2], gang, op)
    return found


def _resources_that_differ(old: Graph, new: Graph) -> list[int]:
    """Resources whose width, kind of sharing or interference differ. Passes only append resources,
    so that the same index means the same resource."""
    common = min(len(old.resources), len(new.resources))
    differs = np.zeros(len(new.resources), dtype=bool)
    if old.resources is not new.resources:
        for name in ("width", "capacity", "discipline"):
            before, after = getattr(old.resources, name), getattr(new.resources, name)
            differs[:common] |= before[:common] != after[:common]
    if old.interference is not new.interference:
        before_rules, after_rules = (
            Counter(zip(*(values.tolist() for _, values in rules.columns()), strict=True))
            for rules in (old.interference, new.interference)
        )
        for victim, *_ in (before_rules - after_rules) + (after_rules - before_rules):
            differs[victim] = True
    return np.flatnonzero(differs).tolist()
