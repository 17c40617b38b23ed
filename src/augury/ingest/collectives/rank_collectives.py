"""Collectives in one rank's Kineto trace: gloo's host events, kernels of NCCL and RCCL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.core.trace.rank_record import RecordedCall
from augury.ingest.formats.kineto import KERNEL_CATEGORY, KinetoTrace
from augury.ingest.formats.kineto_events import Args
from augury.ingest.trace_builder import MutableEvents
from augury.ingest.vocabulary.torch import (
    GLOO,
    collective_kind,
    element_bytes,
    is_collective_kernel,
    is_collective_range,
)

MAX_SIZE_BYTES = 1 << 60
_MAX_ELEMENTS = 1 << 56
_MAX_RANKS = 1 << 14
_PLACE = re.compile(r"[0-9]{1,6}")
_MESSAGE = re.compile(r"(?:send|recv) [0-9]{1,6}(?:->|<-)([0-9]{1,6})$")
"""Torch's range around a send or receive ends with the two places in the group."""
_dims = msgspec.json.Decoder(list[list[int | list[int]]])
_types = msgspec.json.Decoder(list[str])
_ranks = msgspec.json.Decoder(list[int])
_text = msgspec.json.Decoder(str)


@dataclass(slots=True, kw_only=True)
class Collective:
    """One rank's part in a collective, or one end of a send with its receive."""

    row: int
    """Row in the events of its window."""
    kind: OpKind
    start_ns: int
    end_ns: int
    arrival_ns: int
    """Time of the launch; the start where the launch is unknown."""
    cause: int = NONE
    """Row of the event that launched it."""
    is_on_device: bool = False
    traced_bytes: int = 0
    """Size by the arguments that the profiler recorded; 0 where it recorded none."""
    size_bytes: int = 0
    group: str | None = None
    """Name of the process group."""
    members: tuple[int, ...] | None = None
    """Ranks of the group by the profiler's arguments; None where it recorded none."""
    communicator: str = ""
    """Separates collectives that have an order of their own where groups are unknown."""
    number: int | None = None
    """Sequence number by the profiler."""
    name: str = ""
    """Name of its event."""
    stream: int = NONE
    """The rank's own number of its stream; NONE in recorded runs."""

    # Known from the rank record alone.
    window: int = 0
    step: int = NONE
    peer: int = NONE
    bucket: int = NONE
    call: RecordedCall | None = None
    is_estimated: bool = False
    """Start and end are estimates: the profiler recorded no event."""

    @property
    def is_point_to_point(self) -> bool:
        return self.kind in (OpKind.SEND, OpKind.RECV)


def find_collectives(trace: KinetoTrace, events: MutableEvents) -> list[Collective]:
    """Returns the collectives in order of their starts. ``events`` are those of ``trace``, with
    kernels linked to their launches.

    Arguments of an NCCL kernel stand at the kernel itself or at the ranges around its launch,
    depending on the version of torch."""
    found = []
    ranks_of_group = {
        str(group.pg_name): _valid_ranks(group.ranks) for group in trace.distributed.pg_config
    }
    ends_ns = events.end_ns
    is_kernel = trace.category.where(KERNEL_CATEGORY.__eq__)
    is_kernel &= trace.name.where(is_collective_kernel)
    is_of_gloo = trace.name.where(lambda name: name.startswith(GLOO))
    for i in np.flatnonzero(is_kernel | is_of_gloo).tolist():
        name = trace.name[i]
        ranges = ranges_around(trace, int(events.cause[i])) if is_kernel[i] else [i]
        all_args = [trace.args[i], *(trace.args[row] for row in ranges)]
        names = [args.collective or "" for args in all_args]
        names += [trace.name[row] for row in ranges] + [name]
        kind = next((k for n in names if n and (k := collective_kind(n)) is not None), None)
        if kind is None:
            continue
        group = next((str(a.group_name) for a in all_args if a.group_name is not None), None)
        thread = trace.threads[int(trace.thread[i])]
        own_order = f"stream {thread.tid}" if thread.is_device else "gloo"
        found.append(
            Collective(
                row=i,
                kind=kind,
                start_ns=int(events.start_ns[i]),
                end_ns=int(ends_ns[i]),
                arrival_ns=int(events.arrival_ns[i]),
                cause=int(events.cause[i]),
                is_on_device=thread.is_device,
                traced_bytes=next((size for args in all_args if (size := _size_bytes(args))), 0),
                group=group,
                members=next(
                    (ranks for args in all_args if (ranks := _members(args, ranks_of_group))), None
                ),
                communicator=own_order if group is None else f"group {group}",
                number=next(
                    (a.collective_number for a in all_args if a.collective_number is not None), None
                ),
                name=name,
                peer=_peer(kind, all_args, names),
            )
        )
    return sorted(found, key=lambda item: item.start_ns)


def _peer(kind: OpKind, all_args: Sequence[Args], names: Sequence[str]) -> int:
    """Place in the group of the other end of a message; NONE where the trace does not say."""
    if kind not in (OpKind.SEND, OpKind.RECV):
        return NONE
    stated = [str(a.destination if kind == OpKind.SEND else a.source) for a in all_args]
    stated += [found[1] for name in names if (found := _MESSAGE.search(name))]
    return next((int(peer) for peer in stated if _PLACE.fullmatch(peer)), NONE)


def ranges_around(trace: KinetoTrace, row: int) -> list[int]:
    """Rows of torch's ranges around a launch, innermost first."""
    found = []
    while row >= 0:
        if is_collective_range(trace.name[row]):
            found.append(row)
        row = int(trace.parent[row])
    return found


def _size_bytes(args: Args) -> int:
    width = element_bytes(args.dtype or "")
    largest = max(args.in_elements or 0, args.out_elements or 0)
    if width and 0 < largest < _MAX_ELEMENTS:
        return largest * width
    return tensor_bytes(args)


def tensor_bytes(args: Args) -> int:
    """Returns the size of the first tensor that has a shape; 0 if there is none."""
    if not args.input_dims or not args.input_types:
        return 0
    try:
        shapes = _dims.decode(args.input_dims)
        dtypes = _types.decode(args.input_types)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    for shape, dtype in zip(shapes, dtypes, strict=False):
        size = element_bytes(dtype) * _product(shape)
        if 0 < size < MAX_SIZE_BYTES:
            return size
    return 0


def num_elements(args: Args) -> int:
    """Returns the number of elements of the first tensor, or of the first tensor of a list as
    launches take them; 0 where no shape was recorded."""
    if not args.input_dims:
        return 0
    try:
        shapes = _dims.decode(args.input_dims)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    first = shapes[0] if shapes else []
    return _product(first[0] if first and isinstance(first[0], list) else first)


def _product(shape: Sequence[int | list[int]]) -> int:
    """Returns 0 for anything but the shape of a tensor."""
    size = 1 if shape else 0
    for dim in shape:
        if not isinstance(dim, int) or dim < 0:
            return 0
        size = min(size * dim, MAX_SIZE_BYTES)
    return size


def _members(args: Args, ranks_of_group: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        if args.group_ranks:
            raw: bytes = bytes(args.group_ranks)
            ranks = _ranks.decode(_text.decode(raw) if raw.startswith(b'"') else raw)
            if valid := _valid_ranks(ranks):
                return valid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # a long list is cut short with dots: the group's name may still be known
    return ranks_of_group.get(str(args.group_name)) if args.group_name is not None else None


def _valid_ranks(ranks: Sequence[int]) -> tuple[int, ...]:
    """Returns the ranks in order, each once; none if one of them is impossible."""
    found = sorted(set(ranks))
    return tuple(found) if found and found[0] >= 0 and found[-1] < _MAX_RANKS else ()


def note_unmatched(ledger: Ledger, count: int, reason: str) -> None:
    """Counts parts of collectives and messages for which no counterpart was found."""
    ledger.note(
        "unmatched-communication",
        "a communication has no counterpart on another rank",
        count=count,
        remedy="record all ranks over the same steps",
        example=reason,
    )
