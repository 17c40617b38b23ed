"""Enclosing events on threads, and values that events take from the events around them.

The kernel does this if it was built; otherwise the loops below do, with the same results.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8, U1

UNSTATED = 255
"""Phase of an event whose name states none."""


def enclosing(stream: I4, start_ns: I8, dur_ns: I8) -> I4:
    """Returns the row of the innermost event around each event on its stream, or -1.

    Rows are sorted by (stream, start, longest first)."""
    native = _kernel()
    if native is not None:
        found = np.empty(len(stream), dtype=np.int32)
        native.enclosing(*map(np.ascontiguousarray, (stream, start_ns, dur_ns)), found)
        return found
    parent: list[int] = []
    ends = (start_ns + dur_ns).tolist()
    opened: list[int] = []
    current = -1
    for i, (own, start) in enumerate(zip(stream.tolist(), start_ns.tolist(), strict=True)):
        if own != current:
            current = own
            opened.clear()
        # An event that ends where the next one starts does not enclose it.
        while opened and ends[opened[-1]] <= start:
            opened.pop()
        parent.append(opened[-1] if opened else -1)
        opened.append(i)
    return np.array(parent, dtype=np.int32)


def inherit(parent: I4, inherits: NDArray[np.bool_], value: I4) -> I4:
    """Returns ``value``, where the marked events have that of the event around them instead."""
    native = _kernel()
    if native is not None:
        found = value.copy()
        native.inherit(parent, inherits.view(np.uint8), found)
        return found
    result = value.tolist()
    parents = parent.tolist()
    for i in np.flatnonzero(inherits & (parent >= 0)).tolist():
        result[i] = result[parents[i]]
    return np.array(result, dtype=np.int32)


def inherit_phases(parent: I4, stated: U1, covering: Collection[int]) -> U1:
    """Returns the phase of each event: its stated one, else that of the event around it. Phases in
    ``covering`` hold for everything that they enclose, whatever it states."""
    native = _kernel()
    if native is not None:
        found = stated.copy()
        covers = np.zeros(256, dtype=np.uint8)
        covers[list(covering)] = 1
        native.inherit_phases(parent, covers, UNSTATED, found)
        return found
    result = stated.tolist()
    parents = parent.tolist()
    for i in np.flatnonzero(parent >= 0).tolist():
        around = result[parents[i]]
        if result[i] == UNSTATED or around in covering:
            result[i] = around
    return np.array(result, dtype=np.uint8)


def _kernel() -> Any:
    try:
        from augury import _native  # noqa: PLC0415
    except ImportError:
        return None
    return _native
