"""The time for which members of measured collectives wait for the last one to arrive."""

from __future__ import annotations

import numpy as np

from augury.core.columns import I8
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace


def collective_waits_ns(trace: Trace) -> I8:
    """Returns the wait of each event; 0 for events that are no member of a matched collective."""
    events = trace.events
    waits = np.zeros(len(events), dtype=np.int64)
    rows = np.flatnonzero((events.sequence != NONE) & (events.group != NONE))
    if not len(rows):
        return waits
    key = (events.group[rows].astype(np.int64) << 32) | events.sequence[rows]
    _, number, _ = np.unique(key, return_inverse=True, return_counts=True)
    last_ns = np.full(int(number.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last_ns, number, events.start_ns[rows])
    waits[rows] = np.clip(last_ns[number] - events.start_ns[rows], 0, events.dur_ns[rows])
    return waits
