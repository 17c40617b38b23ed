"""Matches the collectives of all ranks of imported traces, one rank after the other.

The collectives of a first rank are the start of a common list. Each further rank is aligned with
the list and adds the collectives that it lacks, so that no single rank needs to have recorded all
of them. Ranks that share no collective, directly or through others, have lists of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.ingest.collectives.matching.collective_sequence import ClockLine, CollectiveSequence
from augury.ingest.collectives.matching.common_order import in_common_order
from augury.ingest.collectives.matching.match_messages import match_messages
from augury.ingest.collectives.matching.matched_collectives import MatchedCollective, Matching
from augury.ingest.collectives.matching.sequence_alignment import Alignment, align_sequences
from augury.ingest.collectives.rank_collectives import Collective, note_unmatched
from augury.ingest.rank.staged_rank import StagedRank
from augury.ingest.trace_builder import TraceBuilder

_MAJORITY = 0.8
_MIN_PAIRS_OF_LABEL = 4


@dataclass(slots=True)
class _CommonList:
    """Collectives of all ranks aligned so far, in order of their ends on the first rank's clock."""

    columns: CollectiveSequence
    parts: list[dict[int, Collective]]
    lines: dict[int, ClockLine]

    def merge(
        self, rank: int, items: list[Collective], own: CollectiveSequence, found: Alignment
    ) -> None:
        for row, place in zip(found.own.tolist(), found.other.tolist(), strict=True):
            self.parts[place][rank] = items[row]
        ours = self.columns
        sizes, members, keys = ours.size_bytes.copy(), ours.members.copy(), ours.key.copy()
        for filled, theirs, unknown in (
            (sizes, own.size_bytes, 0),
            (members, own.members, NONE),
            (keys, own.key, NONE),
        ):
            blank = filled[found.other] == unknown
            filled[found.other[blank]] = theirs[found.own[blank]]
        ours = replace(ours, size_bytes=sizes, members=members, key=keys)
        new = np.setdiff1d(np.arange(len(own)), found.own)
        added = own.at(new)
        labels = _labels_of(found, own, self.columns)
        added = replace(
            added,
            start_ns=found.line.to_other(added.start_ns),
            end_ns=found.line.to_other(added.end_ns),
            label=np.array([labels.get(each, each) for each in added.label.tolist()], np.int32),
        )
        joined = CollectiveSequence(
            **{
                name: np.concatenate([getattr(ours, name), getattr(added, name)])
                for name in ours.__dataclass_fields__
            }
        )
        parts = [*self.parts, *({rank: items[row]} for row in new.tolist())]
        order = np.argsort(joined.end_ns, kind="stable")
        self.columns = joined.at(order)
        self.parts = [parts[place] for place in order.tolist()]
        self.lines[rank] = found.line

    def move_misplaced(self) -> None:
        """Of two collectives that end together, a rank may have lost the first or the second. What
        is left is the first if it was running when the first ended on other ranks: the second
        starts after that."""
        columns = self.columns
        for rank, line in self.lines.items():
            next_place: dict[tuple[int, int, int], int] = {}
            for place in range(len(self.parts) - 1, -1, -1):
                key = (
                    int(columns.kind[place]),
                    int(columns.members[place]),
                    int(columns.label[place]),
                )
                if rank not in self.parts[place] and key in next_place:
                    after = next_place[key]
                    item = self.parts[after][rank]
                    middle_ns = np.array([(item.start_ns + item.end_ns) // 2], dtype=np.int64)
                    sizes = columns.size_bytes[[place, after]]
                    if line.to_other(middle_ns)[0] < columns.end_ns[place] and (
                        sizes[0] == sizes[1] or not sizes.all()
                    ):
                        self.parts[place][rank] = self.parts[after].pop(rank)
                if rank in self.parts[place]:
                    next_place[key] = place
        self._drop_empty()

    def _drop_empty(self) -> None:
        filled = np.array([i for i, parts in enumerate(self.parts) if parts], dtype=np.int64)
        self.columns = self.columns.at(filled)
        self.parts = [self.parts[i] for i in filled.tolist()]


@dataclass(slots=True)
class _Codes:
    """Numbers for groups, names and sequence numbers that have the same meaning on all ranks."""

    members: dict[tuple[int, ...], int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    keys: dict[tuple[object, ...], int] = field(default_factory=dict)

    def sequence(self, items: list[Collective], shared_names: set[str]) -> CollectiveSequence:
        """``items`` are in order of their ends. A number that several of them have, as in a batch
        of messages, or in two communicators of the same ranks, identifies none."""
        ids = [
            (i.members, i.communicator if i.communicator in shared_names else "", i.number)
            for i in items
        ]
        seen = Counter(ids)
        keys = [
            NONE if id_[-1] is None or seen[id_] > 1 else self.keys.setdefault(id_, len(self.keys))
            for id_ in ids
        ]
        return CollectiveSequence(
            kind=np.array([item.kind for item in items], dtype=np.int32),
            # Ranks send different amounts in one all-to-all.
            size_bytes=np.array(
                [0 if i.kind == OpKind.ALL_TO_ALL else i.traced_bytes for i in items],
                dtype=np.int64,
            ),
            members=np.array(
                [
                    NONE
                    if item.members is None
                    else self.members.setdefault(item.members, len(self.members))
                    for item in items
                ],
                dtype=np.int32,
            ),
            label=np.array(
                [self.labels.setdefault(i.communicator, len(self.labels)) for i in items],
                dtype=np.int32,
            ),
            key=np.array(keys, dtype=np.int64),
            start_ns=np.array([item.start_ns for item in items], dtype=np.int64),
            end_ns=np.array([item.end_ns for item in items], dtype=np.int64),
            step=np.array([item.step for item in items], dtype=np.int32),
        )


def match_collectives(
    ranks: Mapping[int, StagedRank], world_size: int, builder: TraceBuilder, ledger: Ledger
) -> Matching:
    """Fills group and sequence of all collectives and returns the matched ones. Ranks whose
    collectives match those of no other rank are noted; an InputError is raised if that is so for
    all ranks."""
    codes = _Codes()
    items_of = {
        rank: sorted(
            (item for item in one.collectives if not item.is_point_to_point),
            key=lambda item: item.end_ns,
        )
        for rank, one in ranks.items()
    }
    items_of = {rank: items for rank, items in items_of.items() if items}
    shared_names = _shared_names(items_of)
    sequences = {r: codes.sequence(items, shared_names) for r, items in items_of.items()}
    lists, reasons = _align_all(items_of, sequences)
    for common in lists:
        common.move_misplaced()
    reasons = _refused(lists, reasons)
    _check_ranks(lists, reasons, ledger)
    all_ranks = tuple(range(world_size))
    members_of = {code: members for members, code in codes.members.items()}
    label_of = {code: label for label, code in codes.labels.items()}
    found: list[MatchedCollective] = []
    for common in lists:
        is_refused = not common.lines.keys().isdisjoint(reasons)
        for place, parts in enumerate(common.parts):
            members = members_of.get(int(common.columns.members[place]), all_ranks)
            group = builder.group(members, label_of[int(common.columns.label[place])])
            lacking = tuple(r for r in members if r in common.lines and r not in parts)
            for rank, item in parts.items():
                ranks[rank].matched.group[item.row] = group
            if is_refused:
                continue
            found.append(MatchedCollective(group=group, parts=parts, lacking=lacking))
        if is_refused:
            reason = next(text for rank, text in reasons.items() if rank in common.lines)
            note_unmatched(ledger, len(common.parts), reason)
    lines = {rank: line for common in lists for rank, line in common.lines.items()}
    found += match_messages(ranks, lines, all_ranks, builder, ledger)
    found = in_common_order(found, lines, ledger)
    matched = [one for one in found if len(one.parts) > 1 or not one.lacking]
    for each in matched:
        each.fill_sequence(ranks)
    return Matching(
        collectives=matched,
        alone=[one for one in found if len(one.parts) == 1 and one.lacking],
        refused=frozenset(reasons),
    )


def _shared_names(items_of: Mapping[int, list[Collective]]) -> set[str]:
    """Names of communicators that several ranks use, if all ranks agree on names at all."""
    seen = Counter(
        name for items in items_of.values() for name in {item.communicator for item in items}
    )
    return {name for name, count in seen.items() if count > 1}


def _align_all(
    items_of: dict[int, list[Collective]], sequences: dict[int, CollectiveSequence]
) -> tuple[list[_CommonList], dict[int, str]]:
    """Returns lists of ranks that share collectives, and the reasons why ranks joined none."""
    left = sorted(items_of, key=lambda rank: (-len(items_of[rank]), rank))
    lists: list[_CommonList] = []
    reasons: dict[int, str] = {}
    while left:
        first = left.pop(0)
        common = _CommonList(
            columns=sequences[first],
            parts=[{first: item} for item in items_of[first]],
            lines={first: ClockLine(offset_ns=0.0)},
        )
        lists.append(common)
        while True:
            joined = [
                rank for rank in sorted(left) if _join(rank, common, items_of, sequences, reasons)
            ]
            if not joined:
                break
            left = [rank for rank in left if rank not in joined]
    return lists, reasons


def _join(
    rank: int,
    common: _CommonList,
    items_of: dict[int, list[Collective]],
    sequences: dict[int, CollectiveSequence],
    reasons: dict[int, str],
) -> bool:
    own = sequences[rank]
    if not _share_a_group(own, common.columns):
        return False
    found = _aligned(own, common.columns)
    if isinstance(found, str):
        reasons[rank] = found
        return False
    labels = _labels_of(found, own, common.columns)
    mapped = [labels.get(each, NONE) for each in own.label[found.own].tolist()]
    if any(
        want not in (NONE, have)
        for want, have in zip(mapped, common.columns.label[found.other].tolist(), strict=True)
    ):
        again = _aligned(own, common.columns, labels)
        found = found if isinstance(again, str) else again
    common.merge(rank, items_of[rank], own, found)
    reasons.pop(rank, None)
    return True


def _aligned(
    own: CollectiveSequence, other: CollectiveSequence, labels: dict[int, int] | None = None
) -> Alignment | str:
    """Aligns the collectives of groups that both may have. Those of other groups, such as the
    tensor-parallel groups of two replicas, are no evidence against a match."""
    rows, places = _of_shared_groups(own, other), _of_shared_groups(other, own)
    found = align_sequences(own.at(rows), other.at(places), labels)
    if isinstance(found, str):
        return found
    return replace(found, own=rows[found.own], other=places[found.other])


def _of_shared_groups(own: CollectiveSequence, other: CollectiveSequence) -> I8:
    """Rows of ``own`` whose group ``other`` has, as far as both state groups."""
    if NONE in other.members:
        return np.arange(len(own))
    return np.flatnonzero((own.members == NONE) | np.isin(own.members, other.members))


def _labels_of(
    found: Alignment, own: CollectiveSequence, other: CollectiveSequence
) -> dict[int, int]:
    """Maps a rank's names of communicators to those of the common list, by the pairs found."""
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    pairs = zip(own.label[found.own].tolist(), other.label[found.other].tolist(), strict=True)
    for label, theirs in pairs:
        votes[label][theirs] += 1
    labels = {}
    for label, counter in votes.items():
        theirs, count = counter.most_common(1)[0]
        if count >= max(_MIN_PAIRS_OF_LABEL, _MAJORITY * counter.total()):
            labels[label] = theirs
    return labels


def _refused(lists: list[_CommonList], reasons: dict[int, str]) -> dict[int, str]:
    """Ranks that should share collectives with those of the longest list and do not, each with the
    reason."""
    if not reasons:
        return {}
    longest = max(lists, key=lambda common: len(common.lines))
    reason = next(iter(reasons.values()))
    return {
        rank: reasons.get(rank, reason)
        for common in lists
        if common is not longest and _share_a_group(common.columns, longest.columns)
        for rank in common.lines
    }


def _share_a_group(own: CollectiveSequence, other: CollectiveSequence) -> bool:
    return len(_of_shared_groups(own, other)) > 0 and len(_of_shared_groups(other, own)) > 0


def _check_ranks(lists: list[_CommonList], reasons: dict[int, str], ledger: Ledger) -> None:
    if not reasons:
        return
    rank, reason = min(reasons.items())
    if not any(len(common.lines) > 1 for common in lists):
        raise InputError(
            f"no collective of rank {rank} matches those of other ranks: {reason}",
            remedy="give traces of one job over the same steps",
        )
    ledger.note(
        "unmatched-rank",
        "no collective of a rank matches those of other ranks; the rank is left out of the"
        " prediction",
        severity=Severity.ERROR,
        count=len(reasons),
        remedy="give traces of one job over the same steps",
        example=f"rank {rank}: {reason}",
    )
