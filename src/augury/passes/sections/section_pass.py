"""The protocol of passes of sections, their refusals, and the variants of modules in a scene."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, TypeVar

from augury.core.errors import InputError
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection, PrecisionSection, ThreadsSection
from augury.costs.module_costs import ModuleVariant, TimeRatio
from augury.passes.protocol import Changed, ErrorModel, Pass, Scene, changed
from augury.passes.sections.module_tree import covers, roots_of


class SectionContent(Protocol):
    """The content of a section of a plan."""

    def errors(self) -> Iterator[str]: ...


S_contra = TypeVar("S_contra", bound=SectionContent, contravariant=True)


class SectionPass(Pass[S_contra], Protocol[S_contra]):
    """A pass whose parameters are a section of a plan. It changes durations and memory of a graph,
    never its structure."""

    def error_in(self, scene: Scene, section: S_contra, /) -> ErrorModel:
        """Returns the error of a prediction of this change of this scene, before the change: small
        where its costs were measured."""


def check_section(one: SectionPass[Any], scene: Scene, section: SectionContent) -> None:
    """Raises InputError where a section is not valid, was applied before, or does not apply."""
    name = PlanSection(str(one.plan_section))
    for error in section.errors():
        raise InputError(f"section {name.value}: {error}", remedy="correct the plan")
    if name in scene.sections:
        raise InputError(f"section {name.value} is applied already", remedy="apply it once")
    for reason in one.applies(scene):
        raise InputError(f"section {name.value}: {reason}", remedy="leave this section out")


def check_allowed(
    modules: Iterable[str], refusal: Callable[[str], str | None], *, change: str
) -> None:
    """Raises InputError for the first module with a reason against its ``change``."""
    for module in modules:
        reason = refusal(module)
        if reason is not None:
            raise InputError(
                f"module {module!r:.80} cannot be {change}: {reason}",
                remedy="leave it out of the section",
            )


def with_section(old: Scene, new: Scene, name: PlanSection, section: SectionContent) -> Changed:
    """Returns the change by a section, which the new scene remembers."""
    return changed(old, replace(new, sections={**old.sections, name: section}))


def variant_of(scene: Scene, module: str) -> ModuleVariant:
    """Returns the variant that the applied sections of a scene make of a module."""
    fusion = scene.sections.get(PlanSection.FUSION)
    precision = scene.sections.get(PlanSection.PRECISION)
    threads = scene.sections.get(PlanSection.THREADS)
    return ModuleVariant(
        is_compiled=isinstance(fusion, FusionSection)
        and _around(scene, fusion, module) is not None,
        dtype=precision.dtype if isinstance(precision, PrecisionSection) else None,
        num_threads=threads.num_threads if isinstance(threads, ThreadsSection) else None,
    )


def ratio_of_change(scene: Scene, module: str, **changes: Any) -> TimeRatio:
    """Returns the change of a module's times if its variant changes so. A module inside of a
    compiled one changes as that does."""
    fusion = scene.sections.get(PlanSection.FUSION)
    if isinstance(fusion, FusionSection):
        module = _around(scene, fusion, module) or module
    before, costs = variant_of(scene, module), scene.module_costs
    return costs.ratio(module, replace(before, **changes)).over(costs.ratio(module, before))


def ratios_of_change(scene: Scene, **changes: Any) -> Callable[[str], TimeRatio]:
    """Returns the change of each module's times by its path."""

    @cache
    def ratio_of(module: str) -> TimeRatio:
        return ratio_of_change(scene, module, **changes)

    return ratio_of


def _around(scene: Scene, fusion: FusionSection, module: str) -> str | None:
    """Returns the compiled module that covers a module, if any."""
    roots = roots_of(scene.training.module_classes)
    return next((one for one in fusion.modules if covers(one, module, roots)), None)
