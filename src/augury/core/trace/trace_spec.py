"""The executable specification of a Trace: order of its tables and ranges of its values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import Table
from augury.core.enums import MemoryKind, OpKind, Phase, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

MAX_RANKS = 1 << 20
MAX_TIME_NS = 4 * 10**18
"""Latest start (the year 2096) and longest duration: their sum fits 64 bits."""
_TABLES = ("events", "streams", "steps", "gradients", "memory", "allocations")


def problems(trace: Trace) -> Iterator[str]:
    """Describes the first violation in each column; returns none for a valid trace."""
    for name in _TABLES:
        if len({len(values) for _, values in getattr(trace, name).columns()}) > 1:
            yield f"{name}: columns differ in length"
            return
    yield from _of_ranks(trace)
    yield from _of_ranges(trace)
    yield from _of_kinds(trace)
    yield from _of_order(trace)


def _of_ranks(trace: Trace) -> Iterator[str]:
    if not 1 <= trace.world_size <= MAX_RANKS:
        yield f"there are {trace.world_size} ranks"
    numbers = [facts.rank for facts in trace.ranks]
    if any(not 0 <= rank < trace.world_size for rank in numbers):
        yield "ranks: a number beyond the number of ranks"
    if any(a >= b for a, b in pairwise(numbers)):
        yield "ranks: not in order"
    for group in trace.groups:
        if len(set(group)) != len(group) or any(not 0 <= r < trace.world_size for r in group):
            yield "groups: a member twice, or one that is no rank"
            break
    if any(not 0 <= entry.group < len(trace.groups) for entry in trace.calibration):
        yield "calibration: of no group"


def _of_ranges(trace: Trace) -> Iterator[str]:
    events, steps = trace.events, trace.steps
    num_strings, num_groups = len(trace.strings), len(trace.groups)
    ends = trace.strings.ends
    if len(ends) and (
        ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] > len(trace.strings.blob)
    ):
        yield "strings: their ends do not fit their text"
    time = (-MAX_TIME_NS, MAX_TIME_NS)
    size = (0, 1 << 61)
    bounds: list[tuple[str, str, int, int]] = [
        ("events", "stream", 0, len(trace.streams)),
        ("events", "name", NONE, num_strings),
        ("events", "layer", NONE, num_strings),
        ("events", "start_ns", *time),
        ("events", "dur_ns", 0, time[1]),
        ("events", "arrival_ns", *time),
        ("events", "step", NONE, 1 << 31),
        ("events", "size_bytes", *size),
        ("events", "group", NONE, num_groups),
        ("events", "sequence", NONE, 1 << 31),
        ("events", "cause", NONE, len(events)),
        ("events", "parent", NONE, len(events)),
        ("streams", "name", NONE, num_strings),
        ("steps", "step", 0, 1 << 31),
        ("steps", "start_ns", *time),
        ("steps", "end_ns", *time),
        ("steps", "cpu_ns", NONE, time[1]),
        ("steps", "delay_ns", NONE, time[1]),
        ("steps", "helper_cpu_ns", NONE, time[1]),
        ("gradients", "order", 0, 1 << 31),
        ("gradients", "name", NONE, num_strings),
        ("gradients", "size_bytes", *size),
        ("gradients", "bucket", NONE, 1 << 31),
        ("gradients", "group", NONE, num_groups),
        ("memory", "layer", NONE, num_strings),
        ("memory", "size_bytes", *size),
        ("allocations", "at_ns", *time),
        ("allocations", "change_bytes", -size[1], size[1]),
        ("allocations", "allocated_bytes", *size),
        ("allocations", "reserved_bytes", *size),
        ("allocations", "pair", NONE, len(trace.allocations)),
        ("allocations", "stream", NONE, len(trace.streams)),
        ("allocations", "name", NONE, num_strings),
        ("allocations", "layer", NONE, num_strings),
    ]
    bounds += [(table, "rank", 0, trace.world_size) for table in _TABLES]
    for table, column, low, high in bounds:
        values: NDArray[Any] = getattr(getattr(trace, table), column)
        if len(values) and (int(values.min()) < low or int(values.max()) >= high):
            yield f"{table}.{column}: a value is not between {low} and {high}"
    if (steps.end_ns < steps.start_ns).any():
        yield "steps: one ends before it starts"


def _of_kinds(trace: Trace) -> Iterator[str]:
    for table, column, vocabulary in (
        ("events", "kind", OpKind),
        ("events", "phase", Phase),
        ("streams", "kind", StreamKind),
        ("steps", "state", StepState),
        ("memory", "kind", MemoryKind),
        ("allocations", "phase", Phase),
    ):
        values = getattr(getattr(trace, table), column)
        if not np.isin(values, [int(kind) for kind in vocabulary]).all():
            yield f"{table}.{column}: a number that means nothing"


def _of_order(trace: Trace) -> Iterator[str]:
    events = trace.events
    if not _is_sorted(events, "rank", "stream", "start_ns", ("dur_ns", -1)):
        yield "events: not in order"
    if not _is_sorted(trace.steps, "rank", "step"):
        yield "steps: not in order"
    if not _is_sorted(trace.gradients, "rank", "order"):
        yield "gradients: not in order"
    if not _is_sorted(trace.allocations, "rank", "at_ns"):
        yield "allocations: not in order"
    if (events.parent >= np.arange(len(events))).any():
        yield "events: one stands before what encloses it"
    in_range = (events.stream >= 0) & (events.stream < len(trace.streams))
    if in_range.all() and (trace.streams.rank[events.stream] != events.rank).any():
        yield "events: one is on another rank's stream"


def _is_sorted(table: Table, *keys: str | tuple[str, int]) -> bool:
    if len(table) < 2:
        return True
    undecided = np.ones(len(table) - 1, dtype=bool)
    for key in keys:
        name, sign = (key, 1) if isinstance(key, str) else key
        values = getattr(table, name).astype(np.int64)
        step = np.sign(values[1:] - values[:-1]) * sign
        if (undecided & (step < 0)).any():
            return False
        undecided &= step == 0
    return True
