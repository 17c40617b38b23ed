"""Layers of traces with devices, from the frames and ranges that profilers open around modules."""

from __future__ import annotations

import numpy as np

from augury.core.graph.graph import NONE
from augury.core.string_table import StringColumn
from augury.ingest.ancestors import inherit
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.kernel_launches import last_row_with
from augury.ingest.vocabulary.phase_words import module_of


def with_module_layers(trace: KinetoTrace, layer: StringColumn) -> StringColumn:
    """Returns the layers of host events, with those that ``layer`` leaves open. An operation lies
    in the range of its module; a backward node has the sequence number of the operation that
    created it, in forward or in a part of it that backward repeats."""
    modules = [module_of(name) for name in trace.name.strings]
    has_module = np.array([bool(module) for module in modules], dtype=bool)[trace.name.number]
    if not has_module.any():
        return layer
    own = np.where(has_module, trace.name.number, NONE).astype(np.int32)
    own = inherit(trace.parent, ~has_module, own)
    is_node = trace.forward_thread != 0
    # Autograd shows the next free number: the last event with a number has taken it.
    creators = np.flatnonzero((trace.sequence >= 0) & ~is_node)
    nodes = np.flatnonzero(is_node & (own == NONE))
    creator = last_row_with(trace.sequence, creators, nodes)
    created = nodes[creator != NONE]
    own[created] = own[creator[creator != NONE]]
    own = inherit(trace.parent, own == NONE, own)
    size = len(layer.strings)
    is_open = layer.where(lambda name: not name) & (own != NONE)
    number = np.where(is_open, size + own, layer.number).astype(np.int32)
    return StringColumn(number, [*layer.strings, *modules])
