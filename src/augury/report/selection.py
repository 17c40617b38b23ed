"""What to show of much: stretches of the critical path, ranks and resources that stand out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from augury.core.results.replay import PathSegment, RankResult, ResourceResult

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive segments of one kind on one rank and resource."""

    segments: tuple[PathSegment, ...]
    dur_ns: int

    @property
    def first(self) -> PathSegment:
        return self.segments[0]

    @property
    def last(self) -> PathSegment:
        return self.segments[-1]

    @property
    def reason(self) -> str:
        """What most of it waited for; being slowed is told apart."""
        total: dict[str, int] = {}
        for segment in self.segments:
            if segment.reason != "slowed":
                total[segment.reason] = total.get(segment.reason, 0) + segment.dur_ns
        return max(total, key=lambda reason: total[reason], default="slowed")

    @property
    def slowed_ns(self) -> int:
        return sum(s.dur_ns for s in self.segments if s.reason == "slowed")

    @property
    def num_ops(self) -> int:
        return len({segment.op for segment in self.segments})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike(Generic[_T]):
    """Rows that look the same to a reader; ``notes`` say why they are shown."""

    members: list[_T]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> _T:
        return self.members[0]


def longest_step(path: Sequence[PathSegment]) -> int | None:
    """The step in which the path spends most of its time, the last of equals."""
    total: dict[int, int] = {}
    for segment in path:
        if segment.step is not None:
            total[segment.step] = total.get(segment.step, 0) + segment.dur_ns
    return max(total, key=lambda step: (total[step], step), default=None)


def stretches(path: Iterable[PathSegment]) -> list[Stretch]:
    """What took no time, such as the arrival of the last rank, is left out."""

    def key(segment: PathSegment) -> Hashable:
        return segment.rank, segment.step, segment.kind, segment.resource

    grouped = (tuple(group) for _, group in groupby((s for s in path if s.dur_ns), key))
    return [Stretch(segments=g, dur_ns=sum(s.dur_ns for s in g)) for g in grouped]


def heaviest(found: Sequence[Stretch], limit: int) -> list[Stretch]:
    """The longest ones, in the order of time."""
    chosen = sorted(found, key=lambda s: -s.dur_ns)[:limit]
    return sorted(chosen, key=lambda s: s.first.start_ns)


def alike(rows: Iterable[_T], key: Callable[[_T], Hashable]) -> list[Alike[_T]]:
    """Rows with the same ``key`` together, in the order of their first."""
    found: dict[Hashable, list[_T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return [Alike(members=members) for members in found.values()]


def extreme_ranks(groups: Sequence[Alike[RankResult]], limit: int) -> list[Alike[RankResult]]:
    """All where they fit; else those that stand out, each with what it stands out by."""
    if len(groups) <= limit:
        return list(groups)
    notes: dict[int, list[str]] = {}

    def mark(note: str, figure: Callable[[RankResult], float | None], count: int = 1) -> None:
        known = [(v, i) for i, group in enumerate(groups) if (v := figure(group.first)) is not None]
        if len({value for value, _ in known}) > 1:
            for _, index in sorted(known, key=lambda pair: (-pair[0], pair[1]))[:count]:
                notes.setdefault(index, []).append(note)

    mark("slowest", lambda r: r.predicted_step_ns, 2)
    mark("fastest", lambda r: _negative(r.predicted_step_ns))
    mark("slowest measured", lambda r: r.measured_step_ns)
    mark("largest error", lambda r: None if r.error_pct is None else abs(r.error_pct), 2)
    mark("most memory", lambda r: r.peak_memory_bytes)
    mark("least memory", lambda r: _negative(r.peak_memory_bytes))
    if not notes:
        return list(groups[:limit])
    return [
        Alike(members=groups[index].members, notes=tuple(notes[index]))
        for index in sorted(list(notes)[:limit])
    ]


def extreme_resources(
    groups: Sequence[Alike[ResourceResult]], limit: int
) -> list[Alike[ResourceResult]]:
    """All where they fit; else the busiest, the most waiting and the least busy of each kind,
    kinds in turn."""
    if len(groups) <= limit:
        return list(groups)
    orders: tuple[Callable[[ResourceResult], float], ...] = (
        lambda r: -r.busy_pct,
        lambda r: -r.waiting_pct,
        lambda r: r.busy_pct,
    )
    kinds = sorted({group.first.kind for group in groups})
    queues = [
        sorted(
            (i for i, group in enumerate(groups) if group.first.kind == kind),
            key=lambda i, order=order: order(groups[i].first),  # type: ignore[misc]
        )
        for order in orders
        for kind in kinds
    ]
    chosen: list[int] = []
    for place in range(len(groups)):
        for queue in queues:
            if place < len(queue) and queue[place] not in chosen:
                chosen.append(queue[place])
        if len(chosen) >= limit:
            break
    return [groups[i] for i in sorted(chosen[:limit])]


def spans(numbers: Iterable[int], *, max_spans: int = 3) -> str:
    """``0-4, 6, 9-11``; of many spans the first few, and how many numbers are in the others."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = found if len(found) <= max_spans else found[: max_spans - 1]
    words = [str(low) if low == high else f"{low}-{high}" for low, high in shown]
    left_out = sum(high - low + 1 for low, high in found[len(shown) :])
    return ", ".join(words) + (f", +{left_out:,}" if left_out else "")


def shared_prefix(first: str, last: str) -> int:
    """How much of ``last`` the reader knows from ``first``, up to a mark that divides names."""
    known = 0
    for index, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            break
        if a in "./:_ ":
            known = index + 1
    return known


def _negative(value: int | None) -> int | None:
    return None if value is None else -value
