"""Adds facts of the rank record to one rank's collectives: Python calls, DDP buckets, groups.

Events of gloo state a kind and the shape of a tensor, kernels of NCCL often less. Sizes and groups
come from DDP's buckets and Python's calls in the rank record, and from shapes, also those of other
steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from augury.core.enums import OpKind
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import RankRecord, RecordedCall, RecordedDdp
from augury.ingest.collectives.rank_collectives import MAX_SIZE_BYTES, Collective
from augury.ingest.vocabulary.torch import collective_kind

PIECES = "pieces of a plan"
_NEVER_NS = 1 << 62
_MAX_OVERTAKING = 4
"""Events that may start in another order than their calls: gloo has two threads."""


def match_calls(collectives: list[Collective], calls: Iterable[RecordedCall]) -> list[RecordedCall]:
    """Gives events the facts of the Python calls that launched them; returns calls without event.

    A synchronous call encloses its event, an asynchronous call comes before it. An event that
    starts after the program has waited for a call does not belong to that call. The launch of a
    kernel always lies within its call."""
    left = [call for call in calls if collective_kind(call.kind) is not None]
    for encloses in (True, False):
        by_kind: dict[OpKind, list[Collective]] = defaultdict(list)
        for item in collectives:
            if item.call is None:
                by_kind[item.kind].append(item)
        unmatched: list[RecordedCall] = []
        for call in sorted(left, key=lambda call: call.start_ns):
            kind = collective_kind(call.kind)
            assert kind is not None
            traced_kind = _traced_kind(kind, by_kind)
            candidates = (
                item
                for item in by_kind[traced_kind]
                if _may_belong(item, call, encloses=encloses)
                and (item.is_on_device or not _is_fused(kind, traced_kind))
            )
            fitting = [*islice(candidates, _MAX_OVERTAKING)]
            if not fitting:
                unmatched.append(call)
                continue
            # The traced shape may be that of a part of the call's tensors.
            found = next((c for c in fitting if c.traced_bytes == call.size_bytes), fitting[0])
            by_kind[traced_kind].remove(found)
            found.call = call
            found.kind = kind
            found.group = call.group
            found.size_bytes = min(max(0, call.size_bytes), MAX_SIZE_BYTES)
            found.peer = call.peer
            if not found.is_on_device:
                found.arrival_ns = min(call.start_ns, found.start_ns)
        left = unmatched
    return left


def _traced_kind(kind: OpKind, by_kind: dict[OpKind, list[Collective]]) -> OpKind:
    """Kind under which a backend records a call of ``kind``."""
    if by_kind[kind]:
        return kind
    if kind == OpKind.REDUCE_SCATTER:
        return OpKind.ALL_REDUCE  # which is how gloo does it
    return OpKind.ALL_TO_ALL if kind in (OpKind.SEND, OpKind.RECV) else kind


def _is_fused(kind: OpKind, traced_kind: OpKind) -> bool:
    """Kernels of NCCL send and receive at once; gloo's sends leave no event."""
    return kind != traced_kind == OpKind.ALL_TO_ALL


def _may_belong(item: Collective, call: RecordedCall, *, encloses: bool) -> bool:
    if item.is_on_device:
        return encloses and call.start_ns <= item.arrival_ns <= call.end_ns
    is_after = call.start_ns <= item.start_ns <= _latest_start_ns(call)
    return is_after and (not encloses or item.end_ns <= call.end_ns)


def _latest_start_ns(call: RecordedCall) -> int:
    """Latest start of the call's event; far in the future if no wait was recorded."""
    return max(call.waited_until_ns, call.end_ns) if call.waited_until_ns else _NEVER_NS


def note_calls_without_event(calls: Sequence[RecordedCall], ledger: Ledger) -> None:
    ledger.note(
        "call-without-event",
        "a collective that Python called left no event in the trace",
        severity=Severity.INFO,
        count=len(calls),
        example=calls[0].kind if calls else "",
    )


def in_order_of_calls(collectives: list[Collective]) -> list[Collective]:
    """Sorts collectives by their calls, whose order is the same on all ranks.

    Of two collectives on two of gloo's threads the second may start first. Collectives without a
    call keep their places."""
    places = [place for place, item in enumerate(collectives) if item.call is not None]
    called = sorted(
        (collectives[place] for place in places),
        key=lambda item: item.call.start_ns if item.call is not None else 0,
    )
    result = list(collectives)
    for place, item in zip(places, called, strict=True):
        result[place] = item
    return result


def match_buckets(collectives: list[Collective], ddp: list[RecordedDdp], ledger: Ledger) -> None:
    """Assigns DDP's buckets to the all-reduces that no Python call launched, and sorts these.

    DDP reduces its buckets in order. Of two that run at once on gloo's threads the second may
    start first."""
    if not ddp:
        return
    buckets = [(one, index) for one in ddp for index in range(len(one.buckets))]
    # Finding unused parameters takes one more all-reduce after the buckets: a count per parameter.
    maps = [4 * len(one.parameters) for one in ddp if one.find_unused_parameters]
    expected = [one.buckets[index].size_bytes for one, index in buckets] + maps
    period = len(expected)
    groups = {one.group for one in ddp}
    by_step: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(collectives):
        if item.call is None and (item.group is None or item.group in groups):
            item.group = item.group or ddp[0].group
            if item.kind == OpKind.ALL_REDUCE:
                by_step[item.step].append(place)
    for step, places in by_step.items():
        own = [collectives[place] for place in places]
        if not buckets or len(own) % period:
            ledger.note(
                "odd-reductions",
                "the number of all-reduces in a step is no multiple of DDP's buckets; their sizes"
                " are unknown",
                example=f"step {step}: {len(own)}, buckets: {len(buckets)}",
            )
            continue
        for i, place in enumerate(places):
            index = i % period
            fitting = (n for n, one in enumerate(own) if one.traced_bytes in (0, expected[index]))
            item = collectives[place] = own.pop(next(fitting, 0))
            item.size_bytes = expected[index]
            if index < len(buckets):
                item.group = buckets[index][0].group
                item.bucket = index


def sizes_by_position(collectives: list[Collective]) -> None:
    """Copies sizes from a step with known sizes to the same positions of other steps that have the
    same kinds of collectives."""
    by_step: dict[int, list[Collective]] = defaultdict(list)
    for item in collectives:
        by_step[item.step].append(item)
    model = next(
        (items for items in reversed(by_step.values()) if all(c.traced_bytes for c in items)), None
    )
    if model is None:
        return
    kinds = [item.kind for item in model]
    for items in by_step.values():
        if [item.kind for item in items] == kinds:
            for item, known in zip(items, model, strict=True):
                # A call's size is preferred to a shape, which may be that of one rank's part, and
                # a collective's own shape to that of its position.
                if item.size_bytes == 0 or (item.traced_bytes and item.call is None):
                    item.size_bytes = item.traced_bytes or known.traced_bytes


def group_ranks(
    record: RankRecord, name: str | None, members: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Ranks of the group by the record; else ``members``; else all ranks. Lists with ranks beyond
    the world are not believed."""
    stated = [group.ranks for group in record.groups if group.name == name] + [members or ()]
    for ranks in stated:
        found = sorted(set(ranks))
        if found and found[0] >= 0 and found[-1] < record.world_size:
            return tuple(found)
    return tuple(range(record.world_size))


def communicator(record: RankRecord, name: str | None) -> str:
    """Pieces of a plan have an order of their own beside other collectives of the same ranks."""
    return PIECES if record.pieces is not None and name in record.pieces.groups else ""


def note_unknown_sizes(collectives: list[Collective], ledger: Ledger) -> None:
    missing = Counter(
        c.kind.label for c in collectives if c.size_bytes == 0 and c.kind != OpKind.BARRIER
    )
    for label, count in missing.items():
        ledger.note(
            "unknown-size",
            "the size of a communication is unknown",
            count=count,
            example=label,
        )
