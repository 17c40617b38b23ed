"""Sections whose gain is doubtful are left out, unless they are certain without another one."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import PlanSection
from augury.optimize.doubtful_sections import Certain, Doubt, without_doubts

ORDER, FUSION, THREADS = PlanSection.COMMUNICATION, PlanSection.FUSION, PlanSection.THREADS
NOISE = 4.0


@dataclass(frozen=True)
class Combination:
    sections: frozenset[PlanSection]
    step_ns: int


class Space:
    """``saved`` is the time that each combination saves; ``errors`` are those of predictions."""

    def __init__(
        self,
        saved: dict[tuple[PlanSection, ...], int],
        errors: dict[PlanSection, float],
        needed: PlanSection | None = None,
    ) -> None:
        self._saved = {frozenset(sections): time for sections, time in saved.items()}
        self._errors = errors
        self._needed = needed
        self.searched: list[frozenset[PlanSection]] = []

    def combine(self, sections: frozenset[PlanSection]) -> Combination:
        self.searched.append(sections)
        return Combination(sections, 100 - self._saved[sections])

    def doubts(self, one: Combination) -> list[Doubt]:
        found = []
        for name in one.sections:
            gain = self._saved[one.sections] - self._saved[one.sections - {name}]
            least = max(NOISE, self._errors.get(name, 0))
            if gain < least:
                found.append(Doubt(section=name, missing=least - gain, reason=f"gains {gain}"))
        return found

    def certain(self, *sections: PlanSection) -> Certain[Combination]:
        every = frozenset(sections)
        return without_doubts(
            every,
            self.combine,
            self.doubts,
            is_feasible=lambda one: self._needed is None or self._needed in one.sections,
            first=self.combine(every),
        )


def test_a_certain_section_stays_where_a_doubtful_one_hides_its_gain() -> None:
    """Beside compiled modules, whose gain is uncertain, the order gains less than the noise."""
    space = Space({(): 0, (ORDER,): 6, (FUSION,): 4, (ORDER, FUSION): 7}, {FUSION: 13.0})
    found = space.certain(ORDER, FUSION)
    assert found.combination.sections == {ORDER}
    assert found.left_out == {FUSION: "gains 1"}
    assert len(space.searched) == 2


def test_a_section_is_tried_again_once_others_are_left_out() -> None:
    """The order gains nothing beside both others, of which neither is certain alone."""
    saved = {
        (): 0,
        (ORDER,): 6,
        (FUSION,): 5,
        (THREADS,): 3,
        (ORDER, FUSION): 6,
        (ORDER, THREADS): 6,
        (FUSION, THREADS): 8,
        (ORDER, FUSION, THREADS): 8,
    }
    found = Space(saved, {FUSION: 5.5}).certain(ORDER, FUSION, THREADS)
    assert found.combination.sections == {ORDER}
    assert found.left_out.keys() == {FUSION, THREADS}


def test_sections_that_are_doubtful_alone_are_left_out() -> None:
    space = Space({(): 0, (ORDER,): 3, (THREADS,): 1, (ORDER, THREADS): 4}, {})
    found = space.certain(ORDER, THREADS)
    assert found.combination.sections == frozenset()
    assert found.left_out == {THREADS: "gains 1", ORDER: "gains 3"}


def test_a_section_that_is_needed_stays_whatever_it_gains() -> None:
    space = Space({(): 0, (ORDER,): 6, (THREADS,): 1, (ORDER, THREADS): 7}, {}, needed=THREADS)
    found = space.certain(ORDER, THREADS)
    assert found.combination.sections == {ORDER, THREADS}
    assert found.left_out == {}
