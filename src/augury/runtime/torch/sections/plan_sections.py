"""The sections of a plan besides communication in a training: prepared, agreed on, switched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from augury.core.plan.plan import Plan, PlanSection
from augury.runtime.plan_reports import say_refusal
from augury.runtime.torch.ranks.control import Control
from augury.runtime.torch.sections.collective_watch import COMMUNICATES, CollectiveWatch
from augury.runtime.torch.sections.fusion import WATCHED_STEPS, CompiledModules
from augury.runtime.torch.sections.loader import LoaderWorkers
from augury.runtime.torch.sections.module_calls import ModuleCalls
from augury.runtime.torch.sections.precision import AutocastModel
from augury.runtime.torch.sections.recompute import RecomputedModules
from augury.runtime.torch.sections.refusals import modules_of
from augury.runtime.torch.sections.threads import IntraOpThreads

PREPARED_STEPS = 5
"""Exchanges of gradients before ranks agree on the sections."""
REHEARSED = (PlanSection.FUSION, PlanSection.RECOMPUTE, PlanSection.PRECISION)
"""Sections that run modules beside the training first."""
ANOTHER_RANK = "another rank cannot apply it"
NO_LOADER = "the program has not begun to iterate over a DataLoader since then"


class AppliedSection(Protocol):
    """One section in a training."""

    def why_not(self) -> str | None:
        """Returns why it cannot be applied, once the training has run for some steps."""

    def use(self, is_on: bool) -> None:
        """Switches the section between steps."""

    def rehearse(self, is_on: bool) -> None:
        """The forward that begins or has ended is one in which sections try what they will do."""

    def close(self) -> None:
        """Leaves the training as the program made it."""


class PlanSections:
    """``refused``: sections that are not applied. ``loader``: the workers, where they began to
    work before. In the first steps sections are rehearsed; then ranks vote on each."""

    def __init__(
        self,
        model: Any,
        plan: Plan,
        refused: Collection[PlanSection],
        loader: LoaderWorkers | None,
        control: Control,
    ) -> None:
        self._control, self._rank = control, control.group.rank
        self.is_preparing = True
        self._num_steps = 0
        has_fusion = plan.fusion is not None and PlanSection.FUSION not in refused
        self._prepared_steps = WATCHED_STEPS if has_fusion else PREPARED_STEPS
        self._own: dict[PlanSection, str] = {}
        """Sections that this rank cannot apply."""
        self._ballot: Any = None
        self._parts: dict[PlanSection, AppliedSection] = {}
        calls = ModuleCalls()
        fused, recomputed = modules_of(model, plan)
        # Each layer lies around those before.
        if fused is not None and PlanSection.FUSION not in refused:
            self._parts[PlanSection.FUSION] = CompiledModules(fused, calls)
        if recomputed is not None and PlanSection.RECOMPUTE not in refused:
            self._parts[PlanSection.RECOMPUTE] = RecomputedModules(recomputed, calls)
        if plan.precision is not None and PlanSection.PRECISION not in refused:
            self._parts[PlanSection.PRECISION] = AutocastModel(model, plan.precision, calls)
        self._watch = CollectiveWatch()
        if self._parts:
            calls.add(model.module, self._watch)
        self._calls = calls
        if plan.threads is not None and PlanSection.THREADS not in refused:
            self._parts[PlanSection.THREADS] = IntraOpThreads(plan.threads)
        if plan.loader is not None and PlanSection.LOADER not in refused:
            self._parts[PlanSection.LOADER] = loader or LoaderWorkers(plan.loader, rank=self._rank)

    def use(self, sections: Collection[PlanSection]) -> None:
        for section, part in self._parts.items():
            part.use(section in sections)

    def before_forward(self) -> None:
        """A forward that builds a graph begins."""
        if self.is_preparing and self._watch.is_over and not self._watch.has_seen:
            self._rehearse(True)

    def after_forward(self) -> None:
        self._rehearse(False)

    def _rehearse(self, is_on: bool) -> None:
        for part in self._parts.values():
            part.rehearse(is_on)

    def end_step(self) -> None:
        """All gradients of a step were computed, on all ranks."""
        if not self.is_preparing:
            return
        self._num_steps += 1
        if self._num_steps == self._prepared_steps:
            found = {section: part.why_not() for section, part in self._parts.items()}
            if self._watch.has_seen:
                found |= {one: COMMUNICATES for one in REHEARSED if one in found}
            self._own = {one: reason for one, reason in found.items() if reason is not None}
            self._calls.remove_layers({id(self._watch)})
            self._ballot = self._control.vote(*(int(one in self._own) for one in PlanSection))

    def begin_step(self) -> dict[PlanSection, str] | None:
        """Returns the sections that some rank cannot apply, once, when the ranks have voted."""
        if self._ballot is None:
            return None
        totals, work = self._ballot
        work.wait()
        self._ballot = None
        self.is_preparing = False
        refused = [one for one, total in zip(PlanSection, totals.tolist(), strict=True) if total]
        return {one: self._own.get(one, ANOTHER_RANK) for one in refused}

    def idle_loader(self) -> dict[PlanSection, str]:
        """Returns the section ``loader`` where it waits for a DataLoader."""
        part = self._parts.get(PlanSection.LOADER)
        is_idle = isinstance(part, LoaderWorkers) and not part.is_applied
        return {PlanSection.LOADER: NO_LOADER} if is_idle else {}

    def drop(self, refused: Mapping[PlanSection, str]) -> None:
        """Takes away sections that the ranks have agreed not to apply."""
        for section in refused:
            part = self._parts.pop(section, None)
            if part is not None:
                part.close()
                is_said = section is not PlanSection.LOADER or not part.why_not()
                if is_said and (self._rank == 0 or refused[section] != ANOTHER_RANK):
                    say_refusal(section, refused[section], rank=self._rank or None)

    def close(self) -> None:
        for part in self._parts.values():
            part.close()
        self._calls.remove_layers({id(self._watch)})
        self._parts.clear()
