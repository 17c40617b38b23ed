"""Operations of device streams: kernels after their launches, in order, and after other streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.build.recorded.device.device_collectives import DeviceCollectives
from augury.build.recorded.device.device_rank import DeviceRank
from augury.build.recorded.device.op_columns import GraphStrings, own_kind
from augury.build.recorded.device.stream_waits import LATENCY_NS, ended_just_before
from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind, StreamKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE

_LONG_AGO_NS = np.iinfo(np.int64).min // 2


@dataclass(frozen=True, slots=True)
class StreamKernels:
    """The kernels of one stream in the graph."""

    kernels: I8
    """Rows of the events."""
    op: I8
    """Operation of each kernel."""
    first_op: I8
    """First operation of each kernel, which waits for ``awaited``: the latency of its start."""
    awaited: I8
    """Rows of the kernels of other streams that each kernel waits for, at most two; NONE for most.
    """


def add_kernels(
    builder: GraphBuilder,
    strings: GraphStrings,
    own: DeviceRank,
    kernels: I8,
    collectives: DeviceCollectives,
    op_of: I8,
    begin_ns: int,
    event_waits: tuple[I8, I8],
) -> StreamKernels:
    """Adds the kernels of a stream, each after the one before and after its launch. ``op_of`` has
    the operation of each call; ``begin_ns`` is the start of the graph; ``event_waits`` are kernels
    and those of other streams that they wait for.

    Time between the last of these and the start of the kernel is the latency of the device, or
    unexplained."""
    events = own.trace.events
    stream = int(events.stream[kernels[0]])
    is_communication = own.trace.streams.kind[stream] == StreamKind.COMMUNICATION
    resource = builder.resource(
        own.trace.strings[int(own.trace.streams.name[stream])],
        rank=own.row,
        kind=ResourceKind.COMMUNICATION if is_communication else ResourceKind.COMPUTE,
    )
    cause = events.cause[kernels]
    launch = np.where(cause == NONE, NONE, op_of[cause])
    start_ns = events.start_ns[kernels]
    known_ns = _known_ns(own, kernels, launch != NONE, begin_ns)
    awaited = np.full((2, len(kernels)), NONE, dtype=np.int64)
    awaited[0] = _waited_for(kernels, *event_waits)
    known_ns = _with_ends(own, known_ns, awaited[0])
    awaited[1] = ended_just_before(own, kernels, known_ns)
    known_ns = _with_ends(own, known_ns, awaited[1])
    key = collectives.of_row[kernels]
    work_ns = np.zeros((len(kernels), 2), dtype=np.int64)
    work_ns[:, 0] = np.maximum(start_ns - known_ns, 0)
    work_ns[:, 1] = np.where(key == NONE, events.dur_ns[kernels], collectives.transfer_ns[key])
    exists = work_ns > 0
    exists[:, 1] = True
    is_late = work_ns[:, 0] > LATENCY_NS
    # The first kernel of a stream may wait for kernels of a step that is not in the graph.
    is_first = ((launch == NONE) | is_late) & (np.arange(len(kernels)) == 0)
    labels = (
        ("start of a kernel", OpKind.LAUNCH),
        ("unexplained", OpKind.UNEXPLAINED),
        ("not begun yet", OpKind.DELAY),
    )
    which = np.where(is_first, 2, is_late.astype(np.int64))
    wait_name = np.array([builder.string(text) for text, _ in labels])[which]
    wait_kind = np.array([int(kind) for _, kind in labels])[which]
    step = np.repeat(events.step[kernels], 2).reshape(-1, 2)
    step[:, 0] = np.where(is_first, NONE, step[:, 0])
    none = np.full(len(kernels), NONE)
    zero = np.zeros(len(kernels), dtype=np.int64)
    size_bytes = np.where(key == NONE, events.size_bytes[kernels], collectives.size_bytes[key])
    work = work_ns[exists]
    on = np.column_stack([none, np.where(work_ns[:, 1] > 0, resource, NONE)])
    first = builder.ops(
        np.column_stack([wait_name, strings.of(events.name[kernels])])[exists],
        kind=np.column_stack([wait_kind, own_kind(events.kind[kernels])])[exists],
        rank=own.row,
        resource=on[exists],
        work_ns=work,
        size_bytes=np.column_stack([zero, np.maximum(size_bytes, 0)])[exists],
        layer=np.column_stack([none, strings.of(events.layer[kernels])])[exists],
        gang=np.column_stack([none, collectives.gang[key]])[exists],
        step=step[exists],
    )
    number = np.cumsum(exists.reshape(-1)).reshape(-1, 2) - 1 + first
    op, first_op = number[:, 1], np.where(exists[:, 0], number[:, 0], number[:, 1])
    builder.edges(op[:-1], first_op[1:])
    builder.edges(number[exists[:, 0], 0], number[exists[:, 0], 1])
    launched = launch != NONE
    builder.edges(launch[launched], first_op[launched])
    return StreamKernels(kernels, op, first_op, awaited)


def _known_ns(own: DeviceRank, kernels: I8, launched: NDArray[np.bool_], begin_ns: int) -> I8:
    """Returns when the launch of each kernel and the kernel before it on the stream had ended; the
    start of the graph for a first kernel whose launch was not recorded."""
    known_ns = np.full(len(kernels), _LONG_AGO_NS)
    known_ns[1:] = own.end_ns(kernels[:-1])
    launch_ns = own.end_ns(own.trace.events.cause[kernels])
    known_ns = np.where(launched, np.maximum(known_ns, launch_ns), known_ns)
    if known_ns[0] == _LONG_AGO_NS:
        known_ns[0] = begin_ns
    return known_ns


def _waited_for(kernels: I8, waiting: I8, awaited: I8) -> I8:
    """Returns the kernel that each of ``kernels`` waits for; NONE for those not in ``waiting``."""
    if not len(waiting):
        return np.full(len(kernels), NONE, dtype=np.int64)
    place = np.minimum(np.searchsorted(waiting, kernels), len(waiting) - 1)
    return np.where(waiting[place] == kernels, awaited[place], NONE)


def _with_ends(own: DeviceRank, known_ns: I8, awaited: I8) -> I8:
    return np.where(awaited == NONE, known_ns, np.maximum(known_ns, own.end_ns(awaited)))
