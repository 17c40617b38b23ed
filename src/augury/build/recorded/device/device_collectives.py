"""Collectives of device runs as columns: transfer, size, gang, and waits for missing ranks.

The kernel of a collective waits for the last rank. Where all ranks were recorded, the shortest
kernel is the transfer. Where some are missing, even the shortest one may contain a wait. Its
transfer is then that of the same collective at its best; the rest is a wait for ranks that were not
recorded, whose time counts from the previous collective of the rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.enums import are_communication
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

MIN_WAIT_NS = 10_000
"""Shorter waits for missing ranks are counted as transfer."""
MIN_WAIT_SHARE = 0.1
"""Share of the transfer below which a longer kernel is a slower transfer, not a wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCollectives:
    """One entry per collective; index NONE, the last entry, stands for none."""

    of_row: I4
    """Collective of each event; NONE for other events."""
    transfer_ns: I8
    size_bytes: I8
    gang: I8
    """Gang of collectives that several ranks recorded; NONE for others."""
    waiting: I8
    """Rows of the kernels that waited for ranks which were not recorded."""
    wait_ns: I8
    """Wait of each of them."""
    ready_ns: I8
    """Time at which the missing ranks were ready."""
    before: I8
    """Row of the last collective on the same rank that had ended by then; NONE if there is none."""


def device_collectives(trace: Trace, kernels: I8) -> DeviceCollectives:
    """Returns the collectives among ``kernels``, rows of events in the order of the graph's
    operations."""
    events = trace.events
    rows = kernels[are_communication(events.kind[kernels])]
    name = _names(trace, rows)
    kept = _one_per_rank(trace, rows, name)
    rows, name = rows[kept], name[kept]
    names, at, key = np.unique(name, return_index=True, return_inverse=True)
    number = len(names)
    num_members = np.bincount(key, minlength=number)
    shortest_ns = np.full(number + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, key, events.dur_ns[rows])
    size_bytes = np.zeros(number + 1, dtype=np.int64)
    np.maximum.at(size_bytes, key, events.size_bytes[rows])
    several = np.flatnonzero(num_members > 1)
    gang = np.full(number + 1, NONE, dtype=np.int64)
    gang[several[np.argsort(at[several])]] = np.arange(len(several))
    of_row = np.full(len(events) + 1, NONE, dtype=np.int32)
    of_row[rows] = key
    is_complete = num_members >= _num_expected(trace, rows[at])
    transfer_ns = shortest_ns.copy()
    transfer_ns[:number] = _transfer_ns(
        shortest_ns[:number], is_complete, _likeness(trace, rows, key, size_bytes)
    )
    has_wait = transfer_ns < shortest_ns
    is_last = has_wait[key] & (events.dur_ns[rows] == shortest_ns[key])
    waiting = rows[is_last]
    ready_ns = events.start_ns[waiting] + events.dur_ns[waiting] - transfer_ns[of_row[waiting]]
    return DeviceCollectives(
        of_row=of_row,
        transfer_ns=transfer_ns,
        size_bytes=size_bytes,
        gang=gang,
        waiting=waiting,
        wait_ns=ready_ns - events.start_ns[waiting],
        ready_ns=ready_ns,
        before=_collectives_before(trace, rows, waiting, ready_ns),
    )


def _names(trace: Trace, rows: I8) -> I8:
    """Group and sequence number of each row as one number; negative numbers for unmatched ones."""
    events = trace.events
    name = (events.group[rows].astype(np.int64) << 32) | events.sequence[rows]
    is_unmatched = (events.group[rows] == NONE) | (events.sequence[rows] == NONE)
    return np.where(is_unmatched, -1 - np.arange(len(rows)), name)


def _one_per_rank(trace: Trace, rows: I8, name: I8) -> NDArray[np.intp]:
    """Returns the places of all rows but those for which the same rank has a later one."""
    rank = trace.events.rank[rows]
    order = np.lexsort((rows, rank, name))
    is_last = np.ones(len(order), dtype=bool)
    is_last[:-1] = (np.diff(name[order]) != 0) | (np.diff(rank[order]) != 0)
    return np.sort(order[is_last])


def _num_expected(trace: Trace, first: I8) -> I8:
    """Returns the number of ranks that take part in each collective, given one event of each."""
    sizes = np.array([*(len(ranks) for ranks in trace.groups), 0], dtype=np.int64)
    group = trace.events.group[first]
    unknown = (group == NONE) | (trace.events.sequence[first] == NONE)
    return np.where(unknown, np.maximum(2, trace.world_size), sizes[group])


def _likeness(trace: Trace, rows: I8, key: I8, size_bytes: I8) -> I8:
    """Returns equal numbers for collectives of the same kind and size. If no size was recorded,
    those in the same place of their steps are taken to be the same."""
    events = trace.events
    order = np.lexsort(
        (events.start_ns[rows], events.kind[rows], events.step[rows], events.rank[rows])
    )
    part = np.column_stack([events.rank[rows], events.step[rows], events.kind[rows]])[order]
    begins = np.concatenate([[True], (np.diff(part, axis=0) != 0).any(axis=1)])[: len(order)]
    place = np.arange(len(order))
    place = place - np.maximum.accumulate(np.where(begins, place, 0))
    of_key = np.zeros((len(size_bytes) - 1, 3), dtype=np.int64)
    of_key[key[order], 0] = events.kind[rows[order]]
    of_key[key[order], 1] = place
    of_key[:, 1] = np.where(size_bytes[:-1] > 0, NONE, of_key[:, 1])
    of_key[:, 2] = size_bytes[:-1]
    return np.unique(of_key, axis=0, return_inverse=True)[1].reshape(-1)


def _transfer_ns(shortest_ns: I8, is_complete: NDArray[np.bool_], likeness: I8) -> I8:
    best_ns = np.full((2, int(likeness.max(initial=0)) + 1), np.iinfo(np.int64).max)
    np.minimum.at(best_ns, (is_complete.astype(np.int64), likeness), shortest_ns)
    known_ns = np.where(best_ns[1] < np.iinfo(np.int64).max, best_ns[1], best_ns[0])
    usual_ns = np.minimum(known_ns[likeness], shortest_ns)
    allowed_ns = np.maximum(MIN_WAIT_NS, MIN_WAIT_SHARE * usual_ns)
    waited = ~is_complete & (shortest_ns - usual_ns > allowed_ns)
    return np.where(waited, usual_ns, shortest_ns)


def _collectives_before(trace: Trace, rows: I8, waiting: I8, ready_ns: I8) -> I8:
    events = trace.events
    found = np.full(len(waiting), NONE, dtype=np.int64)
    for rank in np.unique(events.rank[waiting]).tolist():
        own = rows[events.rank[rows] == rank]
        end_ns = events.start_ns[own] + events.dur_ns[own]
        order = np.argsort(end_ns, kind="stable")
        own, end_ns = own[order], end_ns[order]
        wanted = np.flatnonzero(events.rank[waiting] == rank)
        place = np.searchsorted(end_ns, ready_ns[wanted], side="right") - 1
        is_earlier = place >= 0
        is_earlier &= events.start_ns[own[place]] < events.start_ns[waiting[wanted]]
        found[wanted[is_earlier]] = own[place[is_earlier]]
    return found
