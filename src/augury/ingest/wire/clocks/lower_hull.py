"""The points that lie lowest: of all lines below a cloud of points, each touches one of these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]
Rows = NDArray[np.intp]

_FEW = 64


def lower_hull(x: F8, y: F8) -> Rows:
    """Rows of the lower convex hull, by ``x``; of points above each other only the lowest."""
    rows = np.lexsort((y, x))
    rows = rows[np.append(True, np.diff(x[rows]) > 0)] if len(rows) else rows
    rows = _thinned(x, y, rows)
    kept: list[int] = []
    for row in rows.tolist():
        while len(kept) > 1 and _turn(x, y, kept[-2], kept[-1], row) <= 0:
            kept.pop()
        kept.append(row)
    return np.array(kept, dtype=np.intp)


def height(x: F8, y: F8, where: float) -> float:
    """Of the lower hull at ``where``; beyond its ends, as high as they are."""
    hull = lower_hull(x, y)
    return float(np.interp(where, x[hull], y[hull]))


def _thinned(x: F8, y: F8, rows: Rows) -> Rows:
    """What lies above its two neighbours is not on the hull. Looked at in turns, so that the
    neighbours stay; clouds of a million points are soon small."""
    parity = 0
    before = 2 * len(rows)
    while len(rows) > _FEW and (parity or before - len(rows) > before // 10):
        if not parity:
            before = len(rows)
        middle = np.arange(1 + parity, len(rows) - 1, 2)
        left, own, right = rows[middle - 1], rows[middle], rows[middle + 1]
        is_above = (x[own] - x[left]) * (y[right] - y[left]) <= (y[own] - y[left]) * (
            x[right] - x[left]
        )
        rows = np.delete(rows, middle[is_above])
        parity = 1 - parity
    return rows


def _turn(x: F8, y: F8, first: int, second: int, third: int) -> float:
    return float(
        (x[second] - x[first]) * (y[third] - y[first])
        - (y[second] - y[first]) * (x[third] - x[first])
    )
