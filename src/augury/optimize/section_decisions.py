"""Decisions of a recorded run: the sections that apply to it, with their options."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from augury.core.errors import UsageError
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import (
    CompressionSection,
    HalfPrecision,
    LoaderSection,
    PrecisionSection,
    ThreadsSection,
)
from augury.core.trace.module_timing import THREADS
from augury.optimize.space import Decision
from augury.passes.protocol import Scene
from augury.passes.sections.candidates import CandidateModule, alike, candidate_modules
from augury.passes.sections.fusion import FUSION
from augury.passes.sections.module_tree import covers, known_modules, roots_of
from augury.passes.sections.recompute import RECOMPUTE
from augury.passes.sections.registry import SECTION_PASSES

MAX_GROUPS = 64
"""Groups of modules of one section: those with the most work, or the most memory."""
LEAST_SHARE = 0.005
"""Modules with a smaller share of the work are not changed by themselves."""
NUM_WORKERS = (1, 2, 4, 8)
ADVISED = (PlanSection.ACCUMULATE, PlanSection.SHARDING)
"""Sections that only the user can apply."""

TIMED = (PlanSection.FUSION, PlanSection.PRECISION, PlanSection.THREADS)
"""Sections whose times calibration measures."""


class Numerics(StrEnum):
    """Changes of numbers that a user has to allow by name."""

    PRECISION = "precision"
    COMPRESSION = "compression"
    ROUNDING = "rounding"
    """Changes of last bits only: other orders of sums."""


NEEDS = {
    PlanSection.PRECISION: Numerics.PRECISION,
    PlanSection.COMPRESSION: Numerics.COMPRESSION,
    PlanSection.FUSION: Numerics.ROUNDING,
    PlanSection.THREADS: Numerics.ROUNDING,
}
"""What has to be allowed for a section; all others keep every bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionDecision:
    """A decision with what its options put into their section: modules of a list, or all of it."""

    decision: Decision
    options: tuple[Any, ...]
    """What the options from 1 on stand for."""

    @property
    def is_of_modules(self) -> bool:
        return self.decision.section in (PlanSection.FUSION, PlanSection.RECOMPUTE)


def parse_sections(names: str | Sequence[str] | None) -> frozenset[PlanSection] | None:
    """Parses names of sections, as a list or with commas; None stands for all."""
    if names is None:
        return None
    listed = names.split(",") if isinstance(names, str) else names
    known = [one.value for one in PlanSection if one not in ADVISED]
    return frozenset(PlanSection(_known(name, known, "section")) for name in listed)


def parse_numerics(names: str | Sequence[str] | None) -> frozenset[Numerics]:
    """Parses the names of ``--allow``."""
    if names is None:
        return frozenset()
    listed = names.split(",") if isinstance(names, str) else names
    known = [one.value for one in Numerics]
    return frozenset(Numerics(_known(name, known, "change of numbers")) for name in listed)


def _known(name: str, known: Sequence[str], what: str) -> str:
    if name.strip() not in known:
        raise UsageError(
            f"there is no {what} {name.strip()!r:.80}", remedy=f"choose from {', '.join(known)}"
        )
    return name.strip()


def section_decisions(
    scene: Scene, sections: Collection[PlanSection], *, coarsen: bool = True
) -> list[SectionDecision]:
    """Returns the decisions of these sections, as far as they apply. With ``coarsen`` modules that
    are alike, such as repeated layers, are changed together."""
    applied = [
        name for name in sections if name in SECTION_PASSES and not reasons_against(scene, name)
    ]
    found: list[SectionDecision] = []
    modules = candidate_modules(scene) if {*applied} & {*_REFUSALS} else []
    compute_ns = max((one.work_ns for one in modules), default=0)
    for name in PlanSection:
        if name in (PlanSection.FUSION, PlanSection.RECOMPUTE) and name in applied:
            found += _module_decisions(scene, name, modules, coarsen=coarsen)
        elif name in applied and (options := _whole_options(scene, name)):
            decision = Decision(
                section=name,
                name=name.value,
                num_options=len(options) + 1,
                weight_ns=compute_ns,
            )
            found.append(SectionDecision(decision=decision, options=options))
    return _with_exclusions(found, roots_of(scene.training.module_classes))


def reasons_against(scene: Scene, name: PlanSection) -> list[str]:
    """Returns the reasons why a section does not apply to the run, or has no options."""
    reasons = SECTION_PASSES[name].applies(scene)
    if not reasons and name is PlanSection.THREADS and not _thread_counts(scene):
        reasons = ["no other number of threads fits the cores of a rank"]
    return reasons


_REFUSALS = {PlanSection.FUSION: FUSION.refusal, PlanSection.RECOMPUTE: RECOMPUTE.refusal}


def _module_decisions(
    scene: Scene, name: PlanSection, modules: Sequence[CandidateModule], *, coarsen: bool
) -> list[SectionDecision]:
    usable = [one for one in modules if _REFUSALS[name](scene, one.path) is None]
    if name is PlanSection.FUSION:
        timed = [one for one in usable if one.is_timed]
        usable = timed or usable
    else:
        known = known_modules(scene)
        usable = [
            one
            for one in usable
            if one.saved_bytes and any(path.startswith(f"{one.path}.") for path in known)
        ] or [one for one in usable if one.saved_bytes]
    groups = alike(usable) if coarsen else [(one.path,) for one in usable]
    by_path = {one.path: one for one in usable}
    most_ns = max((one.work_ns for one in modules), default=0)
    found = []
    for group in groups:
        work_ns = sum(by_path[path].work_ns for path in group)
        saved_bytes = sum(by_path[path].saved_bytes for path in group)
        is_small = work_ns < LEAST_SHARE * most_ns
        if is_small and name is PlanSection.FUSION:
            continue
        more = f" and {len(group) - 1} alike" if len(group) > 1 else ""
        decision = Decision(
            section=name,
            name=f"{group[0]}{more}",
            num_options=2,
            weight_ns=work_ns if name is PlanSection.FUSION else saved_bytes,
        )
        found.append(SectionDecision(decision=decision, options=(group,)))
    found.sort(key=lambda one: -one.decision.weight_ns)
    return found[:MAX_GROUPS]


def _whole_options(scene: Scene, name: PlanSection) -> tuple[Any, ...]:
    match name:
        case PlanSection.PRECISION:
            return tuple(PrecisionSection(dtype=dtype) for dtype in _autocast_types(scene))
        case PlanSection.COMPRESSION:
            return (CompressionSection(),)
        case PlanSection.LOADER:
            return tuple(LoaderSection(num_workers=number) for number in NUM_WORKERS)
        case PlanSection.THREADS:
            return tuple(ThreadsSection(num_threads=one) for one in _thread_counts(scene))
        case _:
            return ()


def _autocast_types(scene: Scene) -> list[HalfPrecision]:
    """The types that calibration timed; bfloat16 without times, since it needs no loss scaling."""
    variants = {one.variant for one in scene.module_costs.timings if one.trouble is None}
    timed = [one for one in HalfPrecision if any(one.value in name for name in variants)]
    return timed or [HalfPrecision.BFLOAT16]


def _thread_counts(scene: Scene) -> list[int]:
    """Numbers of threads that calibration timed, or powers of two up to the cores of a rank."""
    now = {*scene.training.num_threads}
    variants = {one.variant for one in scene.module_costs.timings if one.trouble is None}
    timed = {
        int(found.group(1))
        for one in variants
        if (found := re.fullmatch(f"{re.escape(THREADS)}([0-9]+)", one)) is not None
    }
    cores = int(min(scene.training.cores_per_rank, default=0.0))
    counts = timed or {1 << power for power in range(cores.bit_length())} | {max(1, cores)}
    if not timed and not cores:
        return []
    return sorted(counts - now if len(now) == 1 else counts)


def _with_exclusions(
    found: Sequence[SectionDecision], roots: frozenset[str]
) -> list[SectionDecision]:
    """Modules around others exclude them, within one section. A module inside of a compiled one
    cannot be recomputed."""
    done = []
    for one in found:
        excludes = [
            place
            for place, other in enumerate(found)
            if one is not other
            and one.is_of_modules
            and other.is_of_modules
            and _overlap(one, other, roots)
        ]
        done.append(replace(one, decision=replace(one.decision, excludes=tuple(excludes))))
    return done


def _overlap(one: SectionDecision, other: SectionDecision, roots: frozenset[str]) -> bool:
    first, second = one.options[0], other.options[0]
    same_section = one.decision.section is other.decision.section
    for a in first:
        for b in second:
            if a != b or same_section:
                inside = covers(a, b, roots) or covers(b, a, roots)
                if inside and (same_section or _is_recomputed_inside(one, other, a, b, roots)):
                    return True
    return False


def _is_recomputed_inside(
    one: SectionDecision, other: SectionDecision, a: str, b: str, roots: frozenset[str]
) -> bool:
    is_fused = one.decision.section is PlanSection.FUSION
    fused, recomputed = (a, b) if is_fused else (b, a)
    return one.decision.section is not other.decision.section and covers(fused, recomputed, roots)
