"""The work of modules in a graph, to be scaled or moved.

Forward of a run without a device is one operation, of which each module has a share. Everywhere
else an operation belongs to the module that its layer names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from augury.core.columns import I4
from augury.core.enums import are_communication
from augury.core.graph.graph import NONE
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.costs.module_costs import TimeRatio
from augury.passes.protocol import Scene
from augury.passes.sections.module_tree import covers, roots_of
from augury.passes.sections.step_structure import BACKWARD, FORWARD, Mask, runs, step_structure

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModulePass:
    """Operations of one module in one pass of a rank through the model, in order."""

    number: int
    """Number of the pass: see ``StepStructure.pass_of``."""
    rank: int
    forward_ns: float
    backward: I4
    """Its operations in backward, without those that add up gradients."""

    @property
    def backward_begin(self) -> int:
        """The operation at which its backward begins; NONE if it has none."""
        return int(self.backward[0]) if len(self.backward) else NONE


class ModuleWork:
    """Durations of a scene's graph while a section changes them. The graph stays as it is.

    Time for adding up gradients belongs to no module: it stays whatever changes backward."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._graph = scene, scene.graph
        self.roots = roots_of(scene.training.module_classes)
        self.structure = step_structure(scene.graph, scene.structure)
        self.work_ns: Floats = scene.graph.ops.work_ns.astype(np.float64)
        self._shares = dict(scene.training.forward_shares)
        phase = self.structure.phase
        self.forward: Mask = phase == FORWARD
        self.backward: Mask = (phase == BACKWARD) & ~self.structure.adds_gradients
        self._layers = np.unique(self.structure.layer[phase > 0]).tolist()

    @property
    def has_compute(self) -> bool:
        return bool((self.forward | self.backward).any())

    def covers(self, module: str, layer: str) -> bool:
        return covers(module, layer, self.roots)

    def fraction(self, module: str) -> Floats:
        """Returns the part of each operation of forward and backward that belongs to a module."""
        own = self._sum_of_shares(module)

        def forward(path: str) -> float:
            if self.covers(module, path):
                return 1.0
            if not path:
                return own
            return own / self._sum_of_shares(path) if own and self.covers(path, module) else 0.0

        def backward(path: str) -> float:
            return float(self.covers(module, path))

        return self._of_layers(forward, backward)

    def _of_layers(
        self, forward: Callable[[str], float], backward: Callable[[str], float]
    ) -> Floats:
        """Returns a value for each operation of forward and backward, by its layer; 0 for others.
        The path of no layer is empty."""
        of_forward, of_backward = np.zeros((2, len(self._graph.strings) + 1))
        for layer in self._layers:
            path = self._graph.strings[layer] if layer != NONE else ""
            of_forward[layer], of_backward[layer] = forward(path), backward(path)
        layers = self.structure.layer
        return np.asarray(
            np.where(self.forward, of_forward[layers], 0.0)
            + np.where(self.backward, of_backward[layers], 0.0)
        )

    def _sum_of_shares(self, module: str) -> float:
        return sum(share for path, share in self._shares.items() if self.covers(module, path))

    def scale(self, module: str, ratio: TimeRatio) -> None:
        """Multiplies the forward and the backward of a module."""
        fraction = self.fraction(module)
        self.work_ns[self.forward] *= 1 + fraction[self.forward] * (ratio.forward - 1)
        self.work_ns[self.backward] *= 1 + fraction[self.backward] * (ratio.backward - 1)
        self._rescale_shares(
            {path: ratio.forward for path in self._shares if self.covers(module, path)}, rest=1.0
        )

    def scale_all(self, ratio_of: Callable[[str], TimeRatio]) -> None:
        """Multiplies all of forward and backward; ``ratio_of`` states the ratio of what a module
        does outside of the modules inside of it, and of work outside of modules for ""."""
        factor = self._of_layers(
            self._averaged(lambda path: ratio_of(path).forward),
            lambda path: ratio_of(path).backward,
        )
        is_scaled = self.forward | self.backward
        self.work_ns[is_scaled] *= factor[is_scaled]
        self._rescale_shares(
            {path: ratio_of(path).forward for path in self._shares}, rest=ratio_of("").forward
        )

    def wrong_ns(self, error_of: Callable[[str], float]) -> float:
        """Returns the error of the work of the slowest rank in one step, if that of each module has
        this relative error."""
        errors = self._of_layers(self._averaged(error_of), error_of) * self.work_ns
        return float(self.of_ranks(errors).max(initial=0.0))

    def step_ns(self) -> float:
        """Returns the longest work of a rank outside of communication, in one step."""
        work = np.where(are_communication(self._graph.ops.kind), 0.0, self.work_ns)
        return max(1.0, float(self.of_ranks(work).max(initial=0.0)))

    def of_ranks(self, values: Floats) -> Floats:
        """Returns sums over each rank's operations, for one step."""
        sums = np.bincount(self._graph.ops.rank, weights=values)
        return np.asarray(sums / max(1, self._graph.num_steps))

    def _averaged(self, value_of: Callable[[str], float]) -> Callable[[str], float]:
        """Returns a function from the layer of an operation of forward to the value of the modules
        in it, averaged by their shares."""
        values = {path: value_of(path) for path in self._shares}

        def average(layer: str) -> float:
            inside = [one for one in values if not layer or self.covers(layer, one)]
            shares = sum(self._shares[one] for one in inside)
            found = sum(self._shares[one] * values[one] for one in inside)
            if not layer:
                return found + max(0.0, 1 - shares) * value_of("")
            return found / shares if shares else value_of(layer)

        return average

    def _rescale_shares(self, factors: dict[str, float], *, rest: float) -> None:
        scaled = {path: share * factors.get(path, 1.0) for path, share in self._shares.items()}
        outside = max(0.0, 1 - sum(self._shares.values())) * rest
        whole = max(1e-12, outside + sum(scaled.values()))
        self._shares = {path: share / whole for path, share in scaled.items()}

    def gather(self, module: str) -> None:
        """Moves the module's work to its first operation in each forward and backward: what ran in
        between, such as adding up its gradients, follows all of it."""
        fraction, resource = self.fraction(module), self._graph.ops.resource
        pass_of = self.structure.pass_of
        for rows in (self.forward & (fraction == 1), self.backward & (fraction == 1)):
            # Operations without a resource have no work to move.
            moving = np.flatnonzero(rows & (resource != NONE))
            moving = moving[np.lexsort((moving, resource[moving], pass_of[moving]))]
            for first, last in runs(pass_of[moving], resource[moving]):
                own = moving[first:last]
                whole = self.work_ns[own].sum()
                self.work_ns[own] = 0.0
                self.work_ns[own[0]] = whole

    def passes_of(self, module: str) -> list[ModulePass]:
        """Returns a module's work in each pass of each rank through the model, as the durations are
        now."""
        fraction, ops, pass_of = self.fraction(module), self._graph.ops, self.structure.pass_of
        chosen = np.flatnonzero(fraction > 0)
        chosen = chosen[np.argsort(pass_of[chosen], kind="stable")]
        found = []
        for first, last in runs(pass_of[chosen]):
            rows = chosen[first:last]
            forward = rows[self.forward[rows]]
            backward = rows[self.backward[rows] & (ops.resource[rows] != NONE)]
            found.append(
                ModulePass(
                    number=int(pass_of[rows[0]]),
                    rank=int(ops.rank[rows[0]]),
                    forward_ns=float((self.work_ns[forward] * fraction[forward]).sum()),
                    backward=backward.astype(np.int32),
                )
            )
        return found

    def scene(self, **changes: Any) -> Scene:
        """Returns the scene with the durations as they are now. The specification of graphs refuses
        long durations; here they only have to fit the column."""
        work_ns = np.minimum(np.rint(self.work_ns), 2 * MAX_WORK_NS).astype(np.int64)
        return replace(
            self._scene,
            graph=self._graph.with_work_ns(work_ns),
            training=replace(self._scene.training, forward_shares=self._shares),
            structure=self.structure,
            **changes,
        )
