"""Messages of two ranks that follow a plan: each sends the other its share of a piece.

A message is an event of its sender alone, from when its link was free to when it had arrived; the
receiver has an event where its main thread waited for it, named by the same group and sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, StreamKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.core.plan.piece_log import UNSEEN, SwappedStep
from augury.core.trace.rank_record import RankRecord, RecordedCall
from augury.core.trace.trace import Clock
from augury.ingest.clocks.rank_clocks import to_common
from augury.ingest.collectives.calls import PIECES
from augury.ingest.rank.steps import step_at
from augury.ingest.trace_builder import Draft, Workshop

_MESSAGES = ("send", "recv")
AT_ONCE_NS = 200_000
"""Arrivals that are noted within this time of each other may all have come before."""


def is_swap(record: RankRecord, call: RecordedCall) -> bool:
    """Whether the runtime made it: the log of pieces tells more of it."""
    own = record.pieces.groups if record.pieces is not None else []
    return call.group in own and call.kind in _MESSAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedStep:
    """Of one rank, on the common clock; UNSEEN times are NONE."""

    sizes_bytes: list[int]
    issued_ns: list[int]
    arrived_ns: list[int]
    was_seen: list[bool]
    """Whether it arrived while arrivals were watched, rather than before."""
    waited_from_ns: list[int]
    waited_until_ns: list[int]
    wait_steps: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    step: int
    size_bytes: int
    issued_ns: int
    start_ns: int
    end_ns: int
    sequence: int
    waited_from_ns: int
    waited_until_ns: int
    wait_step: int
    was_seen: bool


def draft_swaps(
    records: list[RankRecord], clocks: Mapping[int, Clock], workshop: Workshop, ledger: Ledger
) -> None:
    """Adds the messages and the waits for them, of steps that both ranks have told of."""
    told = {record.rank: _steps(record, clocks[record.rank]) for record in records}
    told = {rank: steps for rank, steps in told.items() if steps}
    if len(records) != 2 or len(told) != 2:
        ledger.note(
            "unmatched-pieces",
            "a rank told of pieces that the other one did not",
            count=sum(len(step.sizes_bytes) for steps in told.values() for step in steps.values()),
            remedy="record all ranks, over the same steps",
        )
        return
    ranks = tuple(sorted(told))
    for sender, receiver in (ranks, ranks[::-1]):
        messages = _without_guesses([*_messages(told[sender], told[receiver])])
        group = workshop.group(ranks, f"{PIECES}, from rank {sender}")
        _add_sent(messages, sender, group, workshop)
        _add_waits([m for m in messages if m.waited_from_ns != NONE], receiver, group, workshop)


def _steps(record: RankRecord, clock: Clock) -> dict[int, _PlannedStep]:
    """By number, those within windows of which there is a trace."""
    if record.pieces is None:
        return {}
    inside = {
        step
        for window in record.all_windows
        if window.trace is not None
        for step in range(window.first + 1, window.last + 1)
    }
    found = {}
    for told in record.pieces.steps:
        number = int(step_at(record, np.array([told.start_ns], dtype=np.int64))[0])
        if number in inside:
            found[number] = _step(record, clock, told)
    return found


def _step(record: RankRecord, clock: Clock, told: SwappedStep) -> _PlannedStep:
    assert record.pieces is not None

    def common(times_ns: list[int]) -> list[int]:
        own = np.array(times_ns, dtype=np.int64)
        return [
            NONE if was == UNSEEN else int(now)
            for was, now in zip(times_ns, to_common(clock, own + told.start_ns), strict=True)
        ]

    waited = np.array(told.waited_from_ns, dtype=np.int64) + told.start_ns
    return _PlannedStep(
        sizes_bytes=record.pieces.orders[told.order],
        issued_ns=common(told.issued_ns),
        arrived_ns=common(told.arrived_ns),
        was_seen=_were_seen(told),
        waited_from_ns=common(told.waited_from_ns),
        waited_until_ns=common(told.waited_until_ns),
        wait_steps=step_at(record, waited).tolist(),
    )


def _were_seen(told: SwappedStep) -> list[bool]:
    """One thread looks at them one after the other: what is there already it notes at once."""
    latest_ns = told.watched_ns
    found = []
    for arrived_ns in told.arrived_ns:
        found.append(arrived_ns > latest_ns + AT_ONCE_NS)
        latest_ns = max(latest_ns, arrived_ns)
    return found


def _messages(
    sender: dict[int, _PlannedStep], receiver: dict[int, _PlannedStep]
) -> Iterator[_Message]:
    """In the order of the list, in which they go over one connection."""
    free_ns, sequence = -(1 << 62), 0
    for number in sorted(sender.keys() & receiver.keys()):
        sent, received = sender[number], receiver[number]
        if sent.sizes_bytes != received.sizes_bytes:
            continue
        for piece, size_bytes in enumerate(sent.sizes_bytes):
            issued_ns = sent.issued_ns[piece]
            begin_ns, until_ns = received.waited_from_ns[piece], received.waited_until_ns[piece]
            seen_ns = [ns for ns in (received.arrived_ns[piece], until_ns) if ns != NONE]
            if issued_ns == NONE or not seen_ns:
                continue
            # The thread that notes arrivals may be late; the one that waited has gone on by then.
            arrived_ns = min(seen_ns)
            start_ns = max(issued_ns, free_ns)
            free_ns = max(arrived_ns, start_ns + 1)
            yield _Message(
                step=number,
                size_bytes=size_bytes,
                issued_ns=issued_ns,
                start_ns=start_ns,
                end_ns=free_ns,
                sequence=sequence,
                waited_from_ns=begin_ns,
                waited_until_ns=min(max(until_ns, begin_ns), max(free_ns, begin_ns)),
                wait_step=received.wait_steps[piece],
                was_seen=received.was_seen[piece] and start_ns < arrived_ns,
            )
            sequence += 1


def _without_guesses(messages: list[_Message]) -> list[_Message]:
    """Messages whose arrival was not seen take as long as others of their size, at most: the
    receiver had not looked before."""
    seen = [m for m in messages if m.was_seen and m.size_bytes]
    if not seen:
        return messages
    ns_per_byte = float(np.median([(m.end_ns - m.start_ns) / m.size_bytes for m in seen]))
    return [
        m if m.was_seen else replace(m, end_ns=min(m.end_ns, m.start_ns + _time(m, ns_per_byte)))
        for m in messages
    ]


def _time(message: _Message, ns_per_byte: float) -> int:
    return max(1, round(message.size_bytes * ns_per_byte))


def _add_sent(messages: list[_Message], rank: int, group: int, workshop: Workshop) -> None:
    start_ns = np.array([m.start_ns for m in messages], dtype=np.int64)
    end_ns = np.array([m.end_ns for m in messages], dtype=np.int64)
    draft = Draft.blank(start_ns, end_ns - start_ns)
    draft.kind[:] = OpKind.SEND
    draft.name[:] = workshop.strings.number("gradients, send")
    draft.stream[:] = workshop.stream(rank, StreamKind.COMMUNICATION, "pieces")
    draft.arrival_ns[:] = [m.issued_ns for m in messages]
    draft.step[:] = [m.step for m in messages]
    draft.size_bytes[:] = [m.size_bytes for m in messages]
    draft.group[:] = group
    draft.sequence[:] = [m.sequence for m in messages]
    workshop.add(rank, draft)


def _add_waits(messages: list[_Message], rank: int, group: int, workshop: Workshop) -> None:
    start_ns = np.array([m.waited_from_ns for m in messages], dtype=np.int64)
    end_ns = np.array([m.waited_until_ns for m in messages], dtype=np.int64)
    draft = Draft.blank(start_ns, end_ns - start_ns)
    draft.kind[:] = OpKind.SYNC
    draft.name[:] = workshop.strings.number("wait")
    draft.stream[:] = workshop.stream(rank, StreamKind.MAIN_THREAD, "main thread")
    draft.step[:] = [m.wait_step for m in messages]
    draft.group[:] = group
    draft.sequence[:] = [m.sequence for m in messages]
    workshop.add(rank, draft)
