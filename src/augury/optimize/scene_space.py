"""The space of a recorded run: sections applied by passes, communication compiled for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from augury.core.columns import I8
from augury.core.enums import are_communication
from augury.core.errors import AuguryError
from augury.core.graph.graph import NONE, Ops
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection, RecomputeSection
from augury.optimize.compiled_orders import CompiledOrder, compiled_orders
from augury.optimize.search import SearchOptions
from augury.optimize.section_decisions import section_decisions
from augury.optimize.space import Candidate, Decision, Evaluated
from augury.predict.plan_prediction import WITHOUT_PIECES, PlannedRun, with_sections
from augury.replay.run import replay
from augury.replay.session import ReplaySession

if TYPE_CHECKING:
    from collections.abc import Collection

    from augury.core.graph.graph import Graph
    from augury.passes.protocol import Scene

MAX_ORDERS = 16
"""Orders of one kind that a search compares."""
MAX_SCENES = 64
"""Changed scenes that are kept."""
MAX_SESSIONS = 32
BUCKETS, PIECES = "DDP's buckets", "pieces in order"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Anchor:
    """A replayed combination, from which others of the same structure are estimated."""

    session: ReplaySession
    plain_ns: I8
    """Durations before the order was applied."""
    new_op_of: I8


class SceneSpace:
    """Decisions of sections and, if communication is among them, two decisions of its order: one of
    bucket sizes and one of ordered pieces."""

    def __init__(
        self,
        run: PlannedRun,
        sections: Collection[PlanSection],
        *,
        options: SearchOptions | None = None,
        has_limit: bool = False,
    ) -> None:
        self._run, self._options = run, options or SearchOptions()
        self._has_limit = has_limit
        self._own = section_decisions(run.scene, sections, coarsen=self._options.coarsen)
        self._has_orders = PlanSection.COMMUNICATION in sections and run.case is not None
        self._orders: tuple[list[CompiledOrder], list[CompiledOrder]] = ([], [])
        self._scenes: dict[Candidate, Scene | None] = {}
        self._anchors: dict[tuple[Any, ...], _Anchor] = {}
        self._deltas: dict[tuple[Any, ...], I8 | None] = {}
        self._saved: dict[tuple[int, int], int] = {}
        self._compiled: dict[Candidate, list[Candidate]] = {}

    @property
    def decisions(self) -> list[Decision]:
        number = len(self._own)
        found = [one.decision for one in self._own]
        if not self._has_orders:
            return found
        exclusive = tuple(place for place, one in enumerate(found) if one.section in WITHOUT_PIECES)
        found = [
            replace(one, excludes=(*one.excludes, number + 1)) if place in exclusive else one
            for place, one in enumerate(found)
        ]
        buckets, pieces = self._orders
        section, weight_ns = PlanSection.COMMUNICATION, self._exposed_ns
        return [
            *found,
            Decision(
                section=section,
                name=BUCKETS,
                num_options=len(buckets) + 1,
                weight_ns=weight_ns,
                excludes=(number + 1,),
            ),
            Decision(
                section=section,
                name=PIECES,
                num_options=len(pieces) + 1,
                weight_ns=weight_ns,
                excludes=(number, *exclusive),
            ),
        ]

    @cached_property
    def _exposed_ns(self) -> int:
        """Communication on the critical path of the recorded run."""
        path, ops = self._run.baseline.critical_path, self._run.baseline.graph.ops
        return int(path.dur_ns[are_communication(ops.kind[path.op])].sum())

    def sections_of(self, candidate: Candidate) -> dict[PlanSection, Any]:
        """Returns the sections that a candidate stands for, apart from communication."""
        found: dict[PlanSection, Any] = {}
        modules: dict[PlanSection, list[str]] = {}
        for one, option in zip(self._own, candidate, strict=False):
            if not option:
                continue
            if one.is_of_modules:
                modules.setdefault(one.decision.section, []).extend(one.options[option - 1])
            else:
                found[one.decision.section] = one.options[option - 1]
        if PlanSection.FUSION in modules:
            found[PlanSection.FUSION] = FusionSection(modules=tuple(modules[PlanSection.FUSION]))
        if PlanSection.RECOMPUTE in modules:
            recomputed = tuple(modules[PlanSection.RECOMPUTE])
            found[PlanSection.RECOMPUTE] = RecomputeSection(modules=recomputed)
        return found

    def order_of(self, candidate: Candidate) -> CompiledOrder | None:
        """Returns the order that a candidate stands for; None for that of the recorded run."""
        if not self._has_orders:
            return None
        for orders, option in zip(self._orders, candidate[len(self._own) :], strict=True):
            if option:
                return orders[option - 1]
        return None

    def evaluate(self, candidate: Candidate) -> Evaluated | None:
        try:
            return self._evaluate(candidate)
        except AuguryError:
            return None

    def _evaluate(self, candidate: Candidate) -> Evaluated | None:
        scene = self._scene(candidate)
        if scene is None:
            return None
        if self._has_limit or not self._options.partial:
            timeline = replay(self._ordered(scene, candidate), fold=self._options.fold)
            peaks = (peak.size_bytes for peak in timeline.peak_memory)
            return Evaluated(step_ns=timeline.step_ns, peak_bytes=max(peaks, default=0))
        anchor = self._anchor(candidate)
        session = anchor.session
        graph = self._reordered(anchor, candidate, scene)
        if graph is None:
            graph = self._ordered(scene, candidate)
        # Memory does not change times.
        return Evaluated(step_ns=session.step_ns(graph.evolve(buffers=session.base.buffers)))

    def _ordered(self, scene: Scene, candidate: Candidate) -> Graph:
        compiled = self.order_of(candidate)
        if compiled is None:
            return scene.graph
        order = compiled.order.order
        return self._run.with_order(scene, order, is_stock=compiled.is_stock).scene.graph

    def _scene(self, candidate: Candidate) -> Scene | None:
        """Returns the scene with a candidate's sections but communication; None where they cannot
        be applied."""
        key = candidate[: len(self._own)]
        if key not in self._scenes:
            if len(self._scenes) >= MAX_SCENES:
                self._scenes.pop(next(iter(self._scenes)))
            try:
                self._scenes[key] = with_sections(self._run.scene, self.sections_of(candidate))
            except AuguryError:
                self._scenes[key] = None
        return self._scenes[key]

    def estimate(self, candidates: Sequence[Candidate]) -> list[Evaluated] | None:
        """Estimates steps by sweeps in the order of a replayed combination with the same order of
        gradients; durations are those of its decisions one by one, added up."""
        groups: dict[Candidate, list[int]] = {}
        for place, candidate in enumerate(candidates):
            groups.setdefault(self._without_modules(candidate), []).append(place)
        steps = np.zeros(len(candidates), dtype=np.int64)
        for context, places in groups.items():
            try:
                anchor = self._anchor(context)
            except AuguryError:
                steps[places] = np.iinfo(np.int64).max
                continue
            rows = np.stack([self._row(anchor, context, candidates[place]) for place in places])
            found = anchor.session.estimate(rows)
            if found is None:
                return None
            steps[places] = found
        peaks = [self._peak_bytes(one) for one in candidates] if self._has_limit else None
        return [
            Evaluated(step_ns=step_ns, peak_bytes=0 if peaks is None else peaks[place])
            for place, step_ns in enumerate(steps.tolist())
        ]

    def _without_modules(self, candidate: Candidate) -> Candidate:
        """Returns a candidate without its changes of modules."""
        return tuple(
            0 if place < len(self._own) and self._own[place].is_of_modules else option
            for place, option in enumerate(candidate)
        )

    def _anchor(self, candidate: Candidate) -> _Anchor:
        context = self._without_modules(candidate)
        if context not in self._anchors:
            if len(self._anchors) >= MAX_SESSIONS:
                self._anchors.pop(next(iter(self._anchors)))
            scene = self._scene(context)
            if scene is None:
                raise AuguryError("the sections cannot be applied together")
            plain_ns = scene.graph.ops.work_ns
            new_op_of = np.arange(scene.graph.num_ops, dtype=np.int64)
            compiled = self.order_of(context)
            if compiled is not None:
                order = compiled.order.order
                found = self._run.with_order(scene, order, is_stock=compiled.is_stock)
                scene, new_op_of = found.scene, found.new_op_of.astype(np.int64)
            session = ReplaySession(scene.graph, fold=self._options.fold)
            self._anchors[context] = _Anchor(
                session=session, plain_ns=plain_ns, new_op_of=new_op_of
            )
        return self._anchors[context]

    def _row(self, anchor: _Anchor, context: Candidate, candidate: Candidate) -> I8:
        """Returns estimated durations of a candidate on the anchor's graph."""
        change_ns = np.zeros(len(anchor.new_op_of), dtype=np.int64)
        for place, one in enumerate(self._own):
            if one.is_of_modules and candidate[place]:
                delta_ns = self._delta(context, place, candidate[place])
                if delta_ns is not None:
                    change_ns += delta_ns
        return np.asarray(np.maximum(self._moved(anchor, change_ns), 0), dtype=np.int64)

    def _reordered(self, anchor: _Anchor, candidate: Candidate, scene: Scene) -> Graph | None:
        """Returns the anchor's graph with a candidate's durations, where its order makes the same
        operations of both: the graph need not be rewritten. None otherwise: without a barrier,
        forward is split at shares of its durations."""
        compiled = self.order_of(candidate)
        if compiled is None or not compiled.order.order.has_barrier:
            return None
        base, ops = anchor.session.base, scene.graph.ops
        change_ns = ops.work_ns - anchor.plain_ns
        own = np.flatnonzero(change_ns)
        new = anchor.new_op_of[own]
        if (new < 0).any() or are_communication(ops.kind[own]).any():
            return None
        resource = base.ops.resource.copy()
        # Operations without work occupy no resource.
        resource[new] = np.where(ops.work_ns[own] == 0, NONE, ops.resource[own])
        columns = dict(base.ops.columns()) | {
            "work_ns": self._moved(anchor, change_ns),
            "resource": resource,
        }
        return base.evolve(ops=Ops(**columns))

    def _moved(self, anchor: _Anchor, change_ns: I8) -> I8:
        """Returns the durations of the anchor's graph with a change of those before its order."""
        kept = anchor.new_op_of >= 0
        work_ns = anchor.session.base.ops.work_ns.copy()
        work_ns[anchor.new_op_of[kept]] += change_ns[kept]
        return work_ns

    def _delta(self, context: Candidate, place: int, option: int) -> I8 | None:
        """Returns the change of durations by one decision; None where it cannot be made."""
        own = context[: len(self._own)]
        key = own, place, option
        if key not in self._deltas:
            before = self._scene(context)
            after = self._scene((*context[:place], option, *context[place + 1 :]))
            self._deltas[key] = (
                None
                if before is None or after is None
                else after.graph.ops.work_ns - before.graph.ops.work_ns
            )
        return self._deltas[key]

    def _peak_bytes(self, candidate: Candidate) -> int:
        """Estimates a peak: what each decision saves by itself, added up."""
        start = self._run_peak_bytes
        return max(
            0,
            start
            - sum(
                self._saved_bytes(place, option)
                for place, option in enumerate(candidate[: len(self._own)])
                if option
            ),
        )

    @cached_property
    def _run_peak_bytes(self) -> int:
        peaks = (peak.size_bytes for peak in self._run.baseline.peak_memory)
        return max(peaks, default=0)

    def _saved_bytes(self, place: int, option: int) -> int:
        if (place, option) not in self._saved:
            alone = [0] * len(self.decisions)
            alone[place] = option
            found = self.evaluate(tuple(alone))
            saved = 0 if found is None else self._run_peak_bytes - found.peak_bytes
            self._saved[place, option] = saved
        return self._saved[place, option]

    def compiled(self, candidate: Candidate) -> list[Candidate]:
        """Compiles the orders of our own search for a candidate's compute: the best list of bucket
        sizes and, where its sections allow them, the best ordered pieces."""
        if not self._has_orders:
            return []
        compute = (*candidate[: len(self._own)], 0, 0)
        if compute not in self._compiled:
            try:
                self._compiled[compute] = self._compile(compute)
            except AuguryError:
                self._compiled[compute] = []
        return self._compiled[compute]

    def _compile(self, compute: Candidate) -> list[Candidate]:
        scene = self._scene(compute)
        if scene is None:
            return []
        has_exclusive = any(
            option and one.decision.section in WITHOUT_PIECES
            for one, option in zip(self._own, compute, strict=False)
        )
        number = len(self._own)
        found = []
        for one in compiled_orders(self._run, scene, has_pieces=not has_exclusive):
            place = 0 if one.is_stock else 1
            option = self._option_of(place, one)
            if option is not None:
                found.append((*compute[: number + place], option, *compute[number + place + 1 :]))
        return found

    def _option_of(self, place: int, compiled: CompiledOrder) -> int | None:
        """Returns the option of an order, which is a new one if the order is new."""
        orders = self._orders[place]
        for number, known in enumerate(orders, start=1):
            if known.order.order.pieces == compiled.order.order.pieces:
                return number
        if len(orders) >= MAX_ORDERS:
            return None
        orders.append(compiled)
        return len(orders)
