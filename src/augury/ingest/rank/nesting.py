"""Which event of a stream encloses which."""

from __future__ import annotations

import numpy as np

from augury.core.columns import I4, I8


def enclosing(stream: I4, start_ns: I8, dur_ns: I8) -> I4:
    """The innermost event around each, or -1; all sorted by (stream, start, longest first)."""
    parent: list[int] = []
    ends = (start_ns + dur_ns).tolist()
    opened: list[int] = []
    current = -1
    for i, (own, start) in enumerate(zip(stream.tolist(), start_ns.tolist(), strict=True)):
        if own != current:
            current = own
            opened.clear()
        # What ends where the next one starts does not enclose it.
        while opened and ends[opened[-1]] <= start:
            opened.pop()
        parent.append(opened[-1] if opened else -1)
        opened.append(i)
    return np.array(parent, dtype=np.int32)
