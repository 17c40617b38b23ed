"""Adds the messages of two ranks that exchange pieces of a plan point to point.

A message is an event of its sender, from the time its link is free to its arrival. The receiver has
an event with the same group and sequence where its main thread waited for the message.
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
from augury.ingest.trace_builder import MutableEvents, TraceBuilder

_MESSAGES = ("send", "recv")
AT_ONCE_NS = 200_000
"""Arrivals recorded within this time of each other may all have happened earlier."""


def is_exchange(record: RankRecord, call: RecordedCall) -> bool:
    """Returns whether the runtime made the call: the log of pieces has more of it."""
    own = record.pieces.groups if record.pieces is not None else []
    return call.group in own and call.kind in _MESSAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedStep:
    """Pieces of one step of one rank on the common clock; UNSEEN times are NONE."""

    sizes_bytes: list[int]
    issued_ns: list[int]
    arrived_ns: list[int]
    was_seen: list[bool]
    """Whether each piece arrived while arrivals were being watched."""
    waited_from_ns: list[int]
    waited_until_ns: list[int]
    wait_steps: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """One piece from one rank to the other."""

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


def add_exchanges(
    records: list[RankRecord], clocks: Mapping[int, Clock], builder: TraceBuilder, ledger: Ledger
) -> None:
    """Adds the messages and waits of the steps that both ranks recorded."""
    steps_of = {record.rank: _steps(record, clocks[record.rank]) for record in records}
    steps_of = {rank: steps for rank, steps in steps_of.items() if steps}
    if len(records) != 2 or len(steps_of) != 2:
        ledger.note(
            "unmatched-pieces",
            "a rank recorded pieces that the other rank did not record",
            count=sum(
                len(step.sizes_bytes) for steps in steps_of.values() for step in steps.values()
            ),
            remedy="record all ranks, over the same steps",
        )
        return
    ranks = tuple(sorted(steps_of))
    for sender, receiver in (ranks, ranks[::-1]):
        messages = _limit_unseen([*_messages(steps_of[sender], steps_of[receiver])])
        group = builder.group(ranks, f"{PIECES}, from rank {sender}")
        _add_sent(messages, sender, group, builder)
        _add_waits([m for m in messages if m.waited_from_ns != NONE], receiver, group, builder)


def _steps(record: RankRecord, clock: Clock) -> dict[int, _PlannedStep]:
    """Steps by number, within windows that have a trace."""
    if record.pieces is None:
        return {}
    inside = {
        step
        for window in record.all_windows
        if window.trace is not None
        for step in range(window.first + 1, window.last + 1)
    }
    found = {}
    for logged in record.pieces.steps:
        number = int(step_at(record, np.array([logged.start_ns], dtype=np.int64))[0])
        if number in inside:
            found[number] = _step(record, clock, logged)
    return found


def _step(record: RankRecord, clock: Clock, logged: SwappedStep) -> _PlannedStep:
    assert record.pieces is not None

    def common(times_ns: list[int]) -> list[int]:
        own = np.array(times_ns, dtype=np.int64)
        return [
            NONE if was == UNSEEN else int(now)
            for was, now in zip(times_ns, to_common(clock, own + logged.start_ns), strict=True)
        ]

    waited = np.array(logged.waited_from_ns, dtype=np.int64) + logged.start_ns
    return _PlannedStep(
        sizes_bytes=record.pieces.orders[logged.order],
        issued_ns=common(logged.issued_ns),
        arrived_ns=common(logged.arrived_ns),
        was_seen=_were_seen(logged),
        waited_from_ns=common(logged.waited_from_ns),
        waited_until_ns=common(logged.waited_until_ns),
        wait_steps=step_at(record, waited).tolist(),
    )


def _were_seen(logged: SwappedStep) -> list[bool]:
    """One thread waits for pieces in order: it records pieces that arrived earlier at once."""
    latest_ns = logged.watched_ns
    found = []
    for arrived_ns in logged.arrived_ns:
        found.append(arrived_ns > latest_ns + AT_ONCE_NS)
        latest_ns = max(latest_ns, arrived_ns)
    return found


def _messages(
    sender: dict[int, _PlannedStep], receiver: dict[int, _PlannedStep]
) -> Iterator[_Message]:
    """Yields messages in the order of the plan, in which they share one connection."""
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
            # The thread that records arrivals may be late; the end of the wait is then earlier.
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


def _limit_unseen(messages: list[_Message]) -> list[_Message]:
    """Limits messages whose arrival was not seen to the typical duration for their size, because
    the receiver looked for them late."""
    seen = [m for m in messages if m.was_seen and m.size_bytes]
    if not seen:
        return messages
    ns_per_byte = float(np.median([(m.end_ns - m.start_ns) / m.size_bytes for m in seen]))
    return [
        m
        if m.was_seen
        else replace(m, end_ns=min(m.end_ns, m.start_ns + _typical_ns(m, ns_per_byte)))
        for m in messages
    ]


def _typical_ns(message: _Message, ns_per_byte: float) -> int:
    return max(1, round(message.size_bytes * ns_per_byte))


def _add_sent(messages: list[_Message], rank: int, group: int, builder: TraceBuilder) -> None:
    start_ns = np.array([m.start_ns for m in messages], dtype=np.int64)
    end_ns = np.array([m.end_ns for m in messages], dtype=np.int64)
    events = MutableEvents.blank(start_ns, end_ns - start_ns)
    events.kind[:] = OpKind.SEND
    events.name[:] = builder.strings.number("gradients, send")
    events.stream[:] = builder.stream(rank, StreamKind.COMMUNICATION, "pieces")
    events.arrival_ns[:] = [m.issued_ns for m in messages]
    events.step[:] = [m.step for m in messages]
    events.size_bytes[:] = [m.size_bytes for m in messages]
    events.group[:] = group
    events.sequence[:] = [m.sequence for m in messages]
    builder.add(rank, events)


def _add_waits(messages: list[_Message], rank: int, group: int, builder: TraceBuilder) -> None:
    start_ns = np.array([m.waited_from_ns for m in messages], dtype=np.int64)
    end_ns = np.array([m.waited_until_ns for m in messages], dtype=np.int64)
    events = MutableEvents.blank(start_ns, end_ns - start_ns)
    events.kind[:] = OpKind.SYNC
    events.name[:] = builder.strings.number("wait")
    events.stream[:] = builder.stream(rank, StreamKind.MAIN_THREAD, "main thread")
    events.step[:] = [m.wait_step for m in messages]
    events.group[:] = group
    events.sequence[:] = [m.sequence for m in messages]
    builder.add(rank, events)
