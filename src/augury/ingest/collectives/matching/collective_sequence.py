"""Columns of the collectives of one rank, and the line between two clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.graph.graph import NONE

F8 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSequence:
    """Collectives of one rank in order of their ends. Kinds, groups and keys are numbers that have
    the same meaning on all ranks."""

    kind: I4
    size_bytes: I8
    """0 where the profiler recorded no size, which agrees with every size."""
    members: I4
    """Ranks of the group; NONE where unknown, which agrees with every group."""
    label: I4
    """The rank's own name of the communicator."""
    key: I8
    """Group and sequence number by the profiler; NONE where it recorded none."""
    start_ns: I8
    end_ns: I8
    step: I4

    def __len__(self) -> int:
        return len(self.end_ns)

    def at(self, rows: I8) -> CollectiveSequence:
        return CollectiveSequence(
            **{name: getattr(self, name)[rows] for name in self.__dataclass_fields__}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLine:
    """Difference of two clocks: other = own + ``offset_ns`` + ``drift`` x (own - ``since_ns``)."""

    offset_ns: float
    drift: float = 0.0
    since_ns: int = 0

    def to_other(self, own_ns: I8) -> I8:
        moved = self.offset_ns + self.drift * (own_ns - self.since_ns)
        result: I8 = own_ns + np.rint(moved).astype(np.int64)
        return result


def agreeing(
    own: CollectiveSequence,
    other: CollectiveSequence,
    i: I8,
    j: I8,
    labels: dict[int, int] | None = None,
) -> NDArray[np.bool_]:
    """Whether each pair may be the same collective by what the profiler says of it."""
    size, theirs = own.size_bytes[i], other.size_bytes[j]
    members, their_members = own.members[i], other.members[j]
    agree: NDArray[np.bool_] = own.kind[i] == other.kind[j]
    agree &= (size == theirs) | (size == 0) | (theirs == 0)
    agree &= (members == their_members) | (members == NONE) | (their_members == NONE)
    if labels:
        known = np.array([*labels], dtype=np.int64)
        mapped = np.full(int(max(known.max(), own.label.max())) + 1, NONE, dtype=np.int64)
        mapped[known] = [*labels.values()]
        wanted = mapped[own.label[i]]
        agree &= (wanted == NONE) | (wanted == other.label[j])
    return agree


def rows_of_shared_keys(
    own: CollectiveSequence, other: CollectiveSequence
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    numbered, theirs = np.flatnonzero(own.key != NONE), np.flatnonzero(other.key != NONE)
    _, first, second = np.intersect1d(own.key[numbered], other.key[theirs], return_indices=True)
    return numbered[first], theirs[second]


def to_neighbour(sequence: CollectiveSequence) -> F8:
    """Distance of each end from the nearest other one of the same kind."""
    found = np.full(len(sequence), np.inf)
    for kind in np.unique(sequence.kind).tolist():
        rows = np.flatnonzero(sequence.kind == kind)
        gaps = np.diff(sequence.end_ns[rows]).astype(np.float64)
        found[rows[1:]] = gaps
        found[rows[:-1]] = np.minimum(found[rows[:-1]], gaps)
    return found
