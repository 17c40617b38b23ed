"""The protocol of passes: scenes, changed scenes, error models and their composition.

A pass changes a graph. It takes a Scene and typed parameters and returns a Changed scene, which
says how operations were renumbered and where a partial replay has to start. Scenes are never
mutated, so that one recorded scene serves any number of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import numpy as np

from augury.build.recorded.training_facts import TrainingFacts
from augury.core.columns import I4, I8
from augury.core.graph.graph import NONE, Graph
from augury.core.plan.plan import PlanSection
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import Costs, fit_network
from augury.costs.links import Links
from augury.costs.module_costs import ModuleCosts
from augury.passes.sections.step_structure import StepStructure
from augury.passes.touched_ops import touched_ops

P_contra = TypeVar("P_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A graph with the costs of its communication: input and output of every pass."""

    graph: Graph
    costs: Costs
    """Cost of each kind of collective on the network of this scene."""
    calibration: tuple[Calibration, ...] = ()
    """Measurements of the recorded network. Passes do not change them."""
    links: Links | None = None
    """Links between ranks on the network of this scene, where the wire was recorded."""
    recorded_links: Links | None = None
    """Links behind the collective times in ``graph``. They are changed only with the ranks."""
    is_expanded: bool = False
    """Whether collectives are expanded into sends and receives on links."""
    module_costs: ModuleCosts = field(default_factory=ModuleCosts)
    """Times of modules under sections of a plan. Passes do not change them."""
    training: TrainingFacts = field(default_factory=TrainingFacts)
    """Facts of the training as ``graph`` has it."""
    sections: Mapping[PlanSection, Any] = field(default_factory=dict)
    """Sections of a plan that were applied already, with their contents."""
    structure: StepStructure | None = None
    """Structure of the steps of ``graph``, or of an earlier graph; see ``step_structure``."""

    @classmethod
    def recorded(
        cls,
        graph: Graph,
        calibration: Sequence[Calibration] = (),
        *,
        links: Links | None = None,
        training: TrainingFacts | None = None,
        module_costs: ModuleCosts | None = None,
    ) -> Scene:
        """Returns the scene of a recorded graph, with its costs fitted."""
        return cls(
            graph=graph,
            costs=fit_network(graph, calibration),
            calibration=tuple(calibration),
            links=links,
            recorded_links=links,
            training=training or TrainingFacts(),
            module_costs=module_costs or ModuleCosts(),
        )


@dataclass(frozen=True, kw_only=True)
class Changed:
    """The result of a pass."""

    scene: Scene
    new_op_of: I4
    """Index in the new graph of each operation of the old graph; -1 if it was removed."""
    find_touched: Callable[[], I4]
    """Finds ``touched``."""
    memory_bytes: I8
    """Change of memory by rank of the new graph. All memory of a new rank counts."""

    @cached_property
    def touched(self) -> I4:
        """Operations of the new graph, rising, whose ready times bound the first difference: up to
        the earliest of them, both graphs replay alike. Found when first asked for, since that takes
        longer than most changes."""
        return self.find_touched()


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """Standard error of a prediction as a share of the step, beyond what the recorded run shows."""

    relative: float = 0.0

    @staticmethod
    def combined(models: Iterable[ErrorModel]) -> ErrorModel:
        """Returns the error of several changes together. Their errors are independent, so that
        squares add up."""
        return ErrorModel(sum(model.relative**2 for model in models) ** 0.5)


class Pass(Protocol[P_contra]):
    """One kind of change. Instances hold no state and are picklable."""

    @property
    def name(self) -> str:
        """Identifier of the pass, unique in the registry."""

    @property
    def plan_section(self) -> str | None:
        """Section of a Plan that carries this change into training; None if there is none."""

    @property
    def advice(self) -> str:
        """Action by which the user makes this change where no plan can; else empty."""

    def applies(self, scene: Scene, /) -> list[str]:
        """Returns the reasons why the pass cannot change this scene; none if it can."""

    def apply(self, scene: Scene, parameters: P_contra, /) -> Changed:
        """Returns the changed scene. Raises AuguryError where the pass does not apply or the
        parameters do not fit the scene."""

    def error_model(self, parameters: P_contra, /) -> ErrorModel:
        """Returns the error of a prediction of this change."""


Step = tuple[Pass[Any], Any]
"""A pass with its parameters."""


def unchanged(scene: Scene) -> Changed:
    """Returns a scene as a change that changes nothing."""
    return Changed(
        scene=scene,
        new_op_of=np.arange(scene.graph.num_ops, dtype=np.int32),
        find_touched=_none_touched,
        memory_bytes=np.zeros(len(scene.graph.ranks), dtype=np.int64),
    )


def changed(old: Scene, new: Scene, new_op_of: I4 | None = None) -> Changed:
    """Returns a change by its outcome. ``new_op_of`` is None where no operation was renumbered."""
    if new_op_of is None:
        new_op_of = np.arange(old.graph.num_ops, dtype=np.int32)
    return Changed(
        scene=new,
        new_op_of=new_op_of,
        find_touched=partial(touched_ops, old.graph, new.graph, new_op_of),
        memory_bytes=_memory_change(_memory_bytes(old.graph), _memory_bytes(new.graph)),
    )


def compose(scene: Scene, steps: Iterable[Step]) -> Changed:
    """Applies passes in the given order, each to the outcome of the one before."""
    whole = unchanged(scene)
    for one, parameters in steps:
        whole = followed_by(whole, one.apply(whole.scene, parameters))
    return whole


def followed_by(first: Changed, second: Changed) -> Changed:
    """Returns two changes in a row as one."""
    kept = first.new_op_of != NONE
    new_op_of = np.full(len(first.new_op_of), NONE, dtype=np.int32)
    new_op_of[kept] = second.new_op_of[first.new_op_of[kept]]
    num_ranks = len(second.memory_bytes)
    memory_bytes = second.memory_bytes.copy()
    common = min(num_ranks, len(first.memory_bytes))
    memory_bytes[:common] += first.memory_bytes[:common]
    return Changed(
        scene=second.scene,
        new_op_of=new_op_of,
        find_touched=partial(_touched_by_both, first, second),
        memory_bytes=memory_bytes,
    )


def _none_touched() -> I4:
    return np.empty(0, dtype=np.int32)


def _touched_by_both(first: Changed, second: Changed) -> I4:
    moved = second.new_op_of[first.touched]
    return np.union1d(moved[moved != NONE], second.touched).astype(np.int32)


def _memory_change(old: I8, new: I8) -> I8:
    common = min(len(old), len(new))
    change = new.copy()
    change[:common] -= old[:common]
    return change


def _memory_bytes(graph: Graph) -> I8:
    """Returns the bytes that each rank holds throughout, plus the most that one step allocates."""
    buffers, num_ranks = graph.buffers, len(graph.ranks)
    held = np.zeros(num_ranks, dtype=np.int64)
    is_held = buffers.taken_by == NONE
    np.add.at(held, buffers.rank[is_held], buffers.size_bytes[is_held])
    if is_held.all():
        return held
    own = ~is_held
    steps, place = np.unique(graph.ops.step[buffers.taken_by[own]], return_inverse=True)
    in_step = np.zeros((num_ranks, len(steps)), dtype=np.int64)
    np.add.at(in_step, (buffers.rank[own], place), buffers.size_bytes[own])
    return np.asarray(held + in_step.max(axis=1), dtype=np.int64)
