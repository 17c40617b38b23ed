"""What one recorded rank communicated: whose all-reduce each was, how large, asked for when.

Gloo's events say what kind they are, and the shape of a tensor. Sizes and groups come from what
DDP and Python's calls told the recorder, and from shapes, be it those of other steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import RankRecord, RecordedCall, RecordedDdp
from augury.ingest.formats.kineto import Args
from augury.ingest.rank.event_names import collective_kind, element_bytes

_dims = msgspec.json.Decoder(list[list[int | list[int]]])
_types = msgspec.json.Decoder(list[str])
_MAX_BYTES = 1 << 60
_NEVER_NS = 1 << 62
PIECES = "pieces of a plan"
_AT_ONCE = 4
"""Events that may have begun in another order than they were asked for: gloo has two threads."""


@dataclass(slots=True, kw_only=True)
class Collective:
    """One rank's part in a communication."""

    window: int
    row: int
    """Of the window's draft; NONE: no event was recorded, only a call."""
    kind: OpKind
    step: int
    start_ns: int
    end_ns: int
    arrival_ns: int
    cause: int = NONE
    shaped_bytes: int = 0
    """By the shape that was recorded; 0 where none was."""
    size_bytes: int = 0
    group: str | None = None
    peer: int = NONE
    bucket: int = NONE
    call: RecordedCall | None = None
    is_estimated: bool = False
    """No event tells when it began and ended."""

    @property
    def is_from_one_to_one(self) -> bool:
        return self.kind in (OpKind.SEND, OpKind.RECV)


def tensor_bytes(args: Args) -> int:
    """Of the first tensor that has a shape; 0 where none has."""
    if not args.input_dims or not args.input_types:
        return 0
    try:
        shapes = _dims.decode(args.input_dims)
        dtypes = _types.decode(args.input_types)
    except (msgspec.DecodeError, RecursionError):
        return 0
    for shape, dtype in zip(shapes, dtypes, strict=False):
        size = element_bytes(dtype) * _product(shape)
        if 0 < size < _MAX_BYTES:
            return size
    return 0


def num_elements(args: Args) -> int:
    """Of the first tensor, be it in a list, as launches take them; 0 where nothing tells."""
    if not args.input_dims:
        return 0
    try:
        shapes = _dims.decode(args.input_dims)
    except (msgspec.DecodeError, RecursionError):
        return 0
    first = shapes[0] if shapes else []
    return _product(first[0] if first and isinstance(first[0], list) else first)


def _product(shape: Sequence[int | list[int]]) -> int:
    """0 for what is no tensor's shape."""
    size = 1 if shape else 0
    for dim in shape:
        if not isinstance(dim, int) or dim < 0:
            return 0
        size = min(size * dim, _MAX_BYTES)
    return size


def of_calls(collectives: list[Collective], calls: Iterable[RecordedCall]) -> list[RecordedCall]:
    """Gives events the facts of the Python calls that made them; what is left has no event.

    A call that waits encloses its event; one that does not comes before it. What began after the
    program had waited for a call is not its event."""
    left = [call for call in calls if collective_kind(call.kind) is not None]
    for encloses in (True, False):
        by_kind: dict[OpKind, list[Collective]] = defaultdict(list)
        for item in collectives:
            if item.call is None:
                by_kind[item.kind].append(item)
        still: list[RecordedCall] = []
        for call in sorted(left, key=lambda call: call.start_ns):
            kind = collective_kind(call.kind)
            assert kind is not None
            if kind == OpKind.REDUCE_SCATTER and not by_kind[kind]:
                kind = OpKind.ALL_REDUCE  # which is what gloo does then, and records
            may_be = (
                item
                for item in by_kind[kind]
                if item.start_ns >= call.start_ns
                and item.start_ns <= _latest_start_ns(call)
                and (item.end_ns <= call.end_ns if encloses else True)
            )
            fitting = [*islice(may_be, _AT_ONCE)]
            if not fitting:
                still.append(call)
                continue
            # A shape may be of a part of what the call was given.
            found = next((c for c in fitting if c.shaped_bytes == call.size_bytes), fitting[0])
            by_kind[kind].remove(found)
            found.call = call
            found.kind = collective_kind(call.kind) or found.kind
            found.group = call.group
            found.size_bytes = min(max(0, call.size_bytes), _MAX_BYTES)
            found.peer = call.peer
            found.arrival_ns = min(call.start_ns, found.start_ns)
        left = still
    return left


def _latest_start_ns(call: RecordedCall) -> int:
    """By when its event must have begun; far away where nobody saw the program wait for it."""
    return max(call.waited_until_ns, call.end_ns) if call.waited_until_ns else _NEVER_NS


def note_unseen(calls: Sequence[RecordedCall], ledger: Ledger) -> None:
    ledger.note(
        "call-without-event",
        "a communication that Python asked for left no event of its own",
        severity=Severity.INFO,
        count=len(calls),
        example=calls[0].kind if calls else "",
    )


def in_order_of_calls(collectives: list[Collective]) -> list[Collective]:
    """As the program asked for them, which is the same order on all ranks: of two threads of gloo's
    the one that took the second may say first that it began. Those that Python did not ask for
    keep their places."""
    places = [place for place, item in enumerate(collectives) if item.call is not None]
    called = sorted(
        (collectives[place] for place in places),
        key=lambda item: item.call.start_ns if item.call is not None else 0,
    )
    result = list(collectives)
    for place, item in zip(places, called, strict=True):
        result[place] = item
    return result


def of_ddp(collectives: list[Collective], ddp: list[RecordedDdp], ledger: Ledger) -> None:
    """DDP reduces its buckets in order; all-reduces that no Python call made are its own. Puts them
    into that order: of two that gloo's threads took at once, the second may say first that it
    began."""
    if not ddp:
        return
    buckets = [(one, index) for one in ddp for index in range(len(one.buckets))]
    # Finding unused parameters takes one more, after the buckets, of a count per parameter.
    maps = [4 * len(one.parameters) for one in ddp if one.find_unused_parameters]
    expected = [one.buckets[index].size_bytes for one, index in buckets] + maps
    period = len(expected)
    by_step: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(collectives):
        if item.call is None and item.group is None:
            item.group = ddp[0].group
            if item.kind == OpKind.ALL_REDUCE:
                by_step[item.step].append(place)
    for step, places in by_step.items():
        own = [collectives[place] for place in places]
        if not buckets or len(own) % period:
            ledger.note(
                "odd-reductions",
                "a step has other all-reduces than DDP has buckets: their sizes are unknown",
                example=f"step {step}: {len(own)}, buckets: {len(buckets)}",
            )
            continue
        for i, place in enumerate(places):
            at = i % period
            fits = (n for n, one in enumerate(own) if one.shaped_bytes in (0, expected[at]))
            item = collectives[place] = own.pop(next(fits, 0))
            item.size_bytes = expected[at]
            if at < len(buckets):
                item.group = buckets[at][0].group
                item.bucket = at


def sizes_by_position(collectives: list[Collective]) -> None:
    """Sizes seen in one step hold at the same place of steps with the same communications."""
    by_step: dict[int, list[Collective]] = defaultdict(list)
    for item in collectives:
        by_step[item.step].append(item)
    model = next(
        (items for items in reversed(by_step.values()) if all(c.shaped_bytes for c in items)), None
    )
    if model is None:
        return
    kinds = [item.kind for item in model]
    for items in by_step.values():
        if [item.kind for item in items] == kinds:
            for item, known in zip(items, model, strict=True):
                # What a call said weighs more than a shape, which may be of one rank's part; a
                # shape of this very communication more than its place.
                if item.size_bytes == 0 or (item.shaped_bytes and item.call is None):
                    item.size_bytes = item.shaped_bytes or known.shaped_bytes


def group_ranks(record: RankRecord, name: str | None) -> tuple[int, ...]:
    """Without a name, or with an unknown one: all ranks."""
    for group in record.groups:
        if group.name == name and group.ranks:
            return tuple(sorted(set(group.ranks)))
    return tuple(range(record.world_size))


def communicator(record: RankRecord, name: str | None) -> str:
    """Pieces of a plan travel in an order of their own, beside other collectives of the ranks."""
    return PIECES if record.pieces is not None and name in record.pieces.groups else ""


def unsized(collectives: list[Collective], ledger: Ledger) -> None:
    missing = Counter(
        c.kind.label for c in collectives if c.size_bytes == 0 and c.kind != OpKind.BARRIER
    )
    for label, count in missing.items():
        ledger.note(
            "unknown-size",
            "nothing says how large a communication was",
            count=count,
            example=label,
        )
