"""Pairs the sends of one rank with the receives of another in imported traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.ingest.collectives.matching.collective_sequence import ClockLine, CollectiveSequence
from augury.ingest.collectives.matching.matched_collectives import MatchedCollective
from augury.ingest.collectives.matching.sequence_alignment import align_sequences
from augury.ingest.collectives.rank_collectives import Collective, note_unmatched
from augury.ingest.rank.staged_rank import StagedRank
from augury.ingest.trace_builder import TraceBuilder

_Ends = tuple[list[Collective], list[Collective]]
"""Sends and receives from one rank to another, in order."""


def match_messages(
    ranks: Mapping[int, StagedRank],
    lines: Mapping[int, ClockLine],
    all_ranks: tuple[int, ...],
    builder: TraceBuilder,
    ledger: Ledger,
) -> list[MatchedCollective]:
    """Fills group and sequence of paired sends and receives. Returns these, and those of which the
    other end was not recorded. ``lines`` lead from the clock of each rank to a common one."""
    between: dict[tuple[int, int], _Ends] = defaultdict(lambda: ([], []))
    num_unknown = 0
    for rank, one in ranks.items():
        for item in sorted(one.collectives, key=lambda item: item.start_ns):
            if not item.is_point_to_point:
                continue
            members = item.members or all_ranks
            one.matched.group[item.row] = builder.group(members, item.communicator)
            peer = peer_rank(item, rank, members)
            if peer == NONE:
                num_unknown += 1
            elif item.kind == OpKind.SEND:
                between[rank, peer][0].append(item)
            else:
                between[peer, rank][1].append(item)
    found: list[MatchedCollective] = []
    note_unmatched(ledger, num_unknown, "the trace does not say which rank a message goes to")
    for (sender, receiver), (sends, receives) in sorted(between.items()):
        if sender not in ranks or receiver not in ranks:
            # The wait for a rank without a trace stays part of the message.
            continue
        pairs = [*_pairs(sends, receives, lines.get(sender), lines.get(receiver))]
        parts = [{sender: send, receiver: receive} for send, receive in pairs]
        paired = {id(item) for pair in pairs for item in pair}
        parts += [{sender: send} for send in sends if id(send) not in paired]
        parts += [{receiver: receive} for receive in receives if id(receive) not in paired]
        for own in parts:
            rank, item = next(iter(own.items()))
            group = int(ranks[rank].matched.group[item.row])
            found.append(
                MatchedCollective(
                    group=group,
                    parts=own,
                    lacking=tuple(r for r in (sender, receiver) if r not in own),
                )
            )
    return found


def peer_rank(item: Collective, rank: int, members: tuple[int, ...]) -> int:
    """Returns the rank at the other end. Torch states its place in the group."""
    if len(members) == 2 and rank in members:
        return members[0] if members[1] == rank else members[1]
    if 0 <= item.peer < len(members) and members[item.peer] != rank:
        return members[item.peer]
    return item.peer if item.peer in members and item.peer != rank else NONE


def _pairs(
    sends: list[Collective],
    receives: list[Collective],
    sender: ClockLine | None,
    receiver: ClockLine | None,
) -> Iterator[tuple[Collective, Collective]]:
    if not sends or not receives:
        return
    own, other = _sequence(receives, receiver), _sequence(sends, sender)
    found = align_sequences(own, other)
    if not isinstance(found, str) and len(found.own) >= 0.5 * min(len(own), len(other)):
        for i, j in zip(found.own.tolist(), found.other.tolist(), strict=True):
            yield sends[j], receives[i]
    elif len(sends) == len(receives) and (own.end_ns >= other.start_ns).all():
        # A short message may have left long before it was received: order alone decides.
        yield from zip(sends, receives, strict=True)


def _sequence(items: list[Collective], line: ClockLine | None) -> CollectiveSequence:
    """Messages of one direction are in order on their stream, so their ends are as well."""
    line = line or ClockLine(offset_ns=0.0)
    size = len(items)
    return CollectiveSequence(
        kind=np.zeros(size, dtype=np.int32),
        size_bytes=np.array([item.traced_bytes for item in items], dtype=np.int64),
        members=np.full(size, NONE, dtype=np.int32),
        label=np.zeros(size, dtype=np.int32),
        key=np.full(size, NONE, dtype=np.int64),
        start_ns=line.to_other(np.array([item.start_ns for item in items], dtype=np.int64)),
        end_ns=line.to_other(np.array([item.end_ns for item in items], dtype=np.int64)),
        step=np.array([item.step for item in items], dtype=np.int32),
    )
