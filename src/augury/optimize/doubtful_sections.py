"""Leaves out of a combination the sections whose gain is doubtful, and searches again without them.

Sections replace each other: one may gain little only because another one is there. So the section
that is furthest from certain goes first, and one that was left out beside a section that was left
out later is tried again at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from augury.core.plan.plan import PlanSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A section whose gain in a combination is not certain."""

    section: PlanSection
    missing: float
    """How far the gain is below the least gain that would be certain."""
    reason: str


class Timed(Protocol):
    """A combination of sections with a predicted step."""

    @property
    def step_ns(self) -> int: ...


C = TypeVar("C", bound=Timed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certain(Generic[C]):
    combination: C
    left_out: dict[PlanSection, str]
    """Sections that were left out, with the reason."""


def without_doubts(
    sections: frozenset[PlanSection],
    combine: Callable[[frozenset[PlanSection]], C],
    doubts: Callable[[C], Sequence[Doubt]],
    *,
    is_feasible: Callable[[C], bool],
    first: C,
    kept: frozenset[PlanSection] = frozenset(),
) -> Certain[C]:
    """``first`` is the combination of all sections; ``combine`` returns the best one of others.
    Sections that are ``kept``, and those without which nothing is feasible, stay."""
    combination = first
    left_out: dict[PlanSection, str] = {}
    while found := [one for one in doubts(combination) if one.section not in kept]:
        doubt = max(found, key=lambda one: one.missing)
        sure = combine(sections - {doubt.section})
        if not is_feasible(sure):
            kept |= {doubt.section}
            continue
        sections -= {doubt.section}
        combination = sure
        left_out[doubt.section] = doubt.reason
    for section in list(left_out)[:-1]:
        again = combine(sections | {section})
        doubted = {one.section for one in doubts(again)} - kept
        if is_feasible(again) and not doubted and again.step_ns < combination.step_ns:
            sections |= {section}
            combination = again
            del left_out[section]
    return Certain(combination=combination, left_out=left_out)
