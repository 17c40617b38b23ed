"""Phase and layer of each event of a Kineto trace."""

from __future__ import annotations

import numpy as np

from augury.core.columns import I4, I8, U1
from augury.core.enums import Phase
from augury.core.graph.graph import NONE
from augury.core.string_table import StringColumn
from augury.core.vocabulary.torch import MODULE_RANGE
from augury.ingest.ancestors import UNSTATED, inherit, inherit_phases
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.kernel_launches import last_row_with
from augury.ingest.rank.mixed_ranges import mixed_ranges, phases_of_names
from augury.ingest.vocabulary.torch import EVALUATE, layer_of_range

_COVERING = (Phase.BACKWARD,)
"""Recomputed activations run forward modules within backward: that is backward's time."""


def phases(trace: KinetoTrace) -> U1:
    """An event has the phase of the event around it, unless its own name states another one.

    An unnamed event at top level has the phase of the event before it on its thread: loss functions
    belong to forward, a reducer's last copies to backward. An operation with a sequence number of
    autograd will be differentiated, so it is forward wherever it stands. Events within ranges that
    contain several phases count as at top level (``rank/mixed_ranges.py``)."""
    stated = phases_of_names(trace)
    levels = mixed_ranges(trace, stated)
    is_mixed = np.zeros(len(trace), dtype=bool)
    is_mixed[np.concatenate([*levels, np.zeros(0, dtype=np.int64)])] = True
    will_be_differentiated = (trace.sequence >= 0) & (trace.forward_thread == 0)
    for level in [None, *levels]:
        if level is None:
            rows = np.flatnonzero(trace.parent < 0)
            place, around = trace.thread[rows], np.full(len(rows), Phase.NONE, dtype=np.uint8)
        else:
            is_inside = np.zeros(len(trace), dtype=bool)
            is_inside[level] = True
            rows = np.flatnonzero(is_inside[trace.parent] & (trace.parent >= 0))
            place = trace.parent[rows]
            around = inherit_phases(trace.parent, stated, _COVERING)[place]
        is_unstated = stated[rows] == UNSTATED
        is_passed = is_unstated & is_mixed[rows]
        stated[rows[is_passed]] = around[is_passed]
        stated[rows[is_unstated & ~is_passed & will_be_differentiated[rows]]] = Phase.FORWARD
        _continue_phases(stated, rows[~is_passed], place[~is_passed], around[~is_passed])
    return inherit_phases(trace.parent, stated, _COVERING)


def _continue_phases(phase: U1, rows: I8, place: I4, around: U1) -> None:
    """Gives unstated events among ``rows`` the phase of the last stated one at their place, a
    thread or an enclosing range, if that is forward or backward; else the phase ``around`` them.
    Updates after a backward within an optimizer's range are updates. ``rows`` are sorted by place
    and time."""
    is_stated = phase[rows] != UNSTATED
    last = np.maximum.accumulate(np.where(is_stated, np.arange(len(rows)), -1))
    found = np.maximum(last, 0)
    before = phase[rows[found]]
    is_continued = (last >= 0) & (place[found] == place)
    is_continued &= (before == Phase.FORWARD) | (
        (before == Phase.BACKWARD) & (around != Phase.UPDATE)
    )
    phase[rows] = np.where(is_stated, phase[rows], np.where(is_continued, before, around))


def layers(trace: KinetoTrace, phase: U1) -> StringColumn:
    """Returns the layer of each event; empty where unknown.

    A forward operation lies in the range of its module. A backward node has the sequence number of
    the forward operation that created it. FSDP's ranges state a layer in any phase."""
    names = trace.name.strings
    layer_of_name = [layer_of_range(name) for name in names]
    is_range = trace.name.where(lambda name: name.startswith(MODULE_RANGE))
    is_stated = trace.name.where(lambda name: bool(layer_of_range(name)))
    own = np.where(is_stated, trace.name.number, len(names)).astype(np.int32)
    if is_range.any():
        own = inherit(trace.parent, ~is_stated, own)
        # Autograd shows the next free number: the last event with a number has taken it.
        creators = np.flatnonzero((phase == Phase.FORWARD) & (trace.sequence >= 0))
        is_backward = phase == Phase.BACKWARD
        nodes = np.flatnonzero(is_backward & (trace.forward_thread != 0))
        creator = last_row_with(trace.sequence, creators, nodes)
        created = nodes[creator != NONE]
        own[created] = own[creator[creator != NONE]]
        is_backward[created] = False
        is_backward[is_stated] = False
        own = inherit(trace.parent, is_backward, own)
    return StringColumn(own, [*layer_of_name, ""])


def backward_nodes(trace: KinetoTrace, phase: U1) -> list[int]:
    """Rows of backward nodes in order of time, without the frames that the engine opens around
    them in detail windows."""
    is_node = phase == Phase.BACKWARD
    if trace.name.where(lambda name: name.startswith(EVALUATE)).any():
        number_of = {name: number for number, name in enumerate(trace.name.strings)}
        frames = [number_of.get(EVALUATE + name, NONE) for name in trace.name.strings]
        frame = np.array(frames, dtype=np.int32)[trace.name.number]
        around = np.where(trace.parent >= 0, trace.name.number[trace.parent], NONE)
        is_node &= (frame != NONE) & (frame == around)
    else:
        is_node &= trace.category.where("cpu_op".__eq__)
    rows = np.flatnonzero(is_node)
    found: list[int] = rows[np.argsort(trace.start_ns[rows], kind="stable")].tolist()
    return found
