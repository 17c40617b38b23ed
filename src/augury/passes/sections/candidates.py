"""Modules that a plan may compile or recompute: their times, their memory, and those alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.graph.graph import NONE
from augury.passes.protocol import Scene
from augury.passes.sections.held_memory import of_kind
from augury.passes.sections.module_tree import known_modules
from augury.passes.sections.module_work import ModuleWork


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateModule:
    """A module with work in forward or backward."""

    path: str
    class_name: str
    forward_ns: tuple[int, ...]
    """Time of its forward in one step, for each rank."""
    backward_ns: tuple[int, ...]
    """Time of its backward in one step, for each rank, without adding up gradients."""
    saved_bytes: int
    """Activations that it saves for backward, on the rank with the most."""
    parameter_bytes: int
    is_timed: bool
    """Whether calibration timed this very module."""
    kind: tuple[object, ...]
    """Equal for modules that are alike: of one class, with the same modules and memory inside."""

    @property
    def work_ns(self) -> int:
        """Time of forward and backward on the rank where they take longest."""
        both = zip(self.forward_ns, self.backward_ns, strict=True)
        return max((forward + backward for forward, backward in both), default=0)


def candidate_modules(scene: Scene) -> list[CandidateModule]:
    """Returns the modules with work, in the order of the model: those around others as well."""
    known, work = known_modules(scene), ModuleWork(scene)
    memory = _Memory(scene)
    found = []
    for path, class_name in known.items():
        fraction = work.fraction(path)
        own_ns = fraction * work.work_ns
        forward_ns, backward_ns = (
            tuple(np.rint(work.of_ranks(np.where(rows, own_ns, 0.0))).astype(np.int64).tolist())
            for rows in (work.forward, work.backward)
        )
        if not any(forward_ns) and not any(backward_ns):
            continue
        found.append(
            CandidateModule(
                path=path,
                class_name=class_name,
                forward_ns=forward_ns,
                backward_ns=backward_ns,
                saved_bytes=memory.saved_bytes(path, work),
                parameter_bytes=memory.parameter_bytes(path, work),
                is_timed=scene.module_costs.has_times(path),
                kind=_kind(path, known, memory, work),
            )
        )
    return found


def alike(candidates: list[CandidateModule]) -> list[tuple[str, ...]]:
    """Groups candidates that are alike, such as the repeated layers of a model, in the order of
    their first module. Plans that treat them alike lose little."""
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for one in candidates:
        groups[one.kind].append(one.path)
    return [tuple(group) for group in groups.values()]


class _Memory:
    """Bytes of parameters and activations by layer, of one rank and one pass."""

    def __init__(self, scene: Scene) -> None:
        buffers, strings = scene.graph.buffers, scene.graph.strings
        self.by_kind: dict[MemoryKind, dict[str, int]] = {}
        for kind in (MemoryKind.PARAMETER, MemoryKind.ACTIVATION):
            rows = np.flatnonzero(of_kind(scene, kind) & (buffers.layer != NONE))
            place = np.stack([buffers.layer[rows], buffers.rank[rows], buffers.taken_by[rows]])
            distinct, number = np.unique(place, axis=1, return_inverse=True)
            held = np.bincount(
                number.reshape(-1), weights=buffers.size_bytes[rows], minlength=distinct.shape[1]
            )
            most: dict[int, int] = defaultdict(int)
            for layer, size in zip(distinct[0].tolist(), held.tolist(), strict=True):
                most[layer] = max(most[layer], int(size))
            self.by_kind[kind] = {strings[layer]: size for layer, size in most.items()}

    def saved_bytes(self, path: str, work: ModuleWork) -> int:
        return self._sum(MemoryKind.ACTIVATION, path, work)

    def parameter_bytes(self, path: str, work: ModuleWork) -> int:
        return self._sum(MemoryKind.PARAMETER, path, work)

    def _sum(self, kind: MemoryKind, path: str, work: ModuleWork) -> int:
        return sum(size for layer, size in self.by_kind[kind].items() if work.covers(path, layer))


def _kind(
    path: str, known: Mapping[str, str], memory: _Memory, work: ModuleWork
) -> tuple[object, ...]:
    inside = [one for one in known if one != path and work.covers(path, one)]
    parameters = memory.by_kind[MemoryKind.PARAMETER]
    sizes = sorted(
        ("" if layer == path else layer.removeprefix(f"{path}."), size)
        for layer, size in parameters.items()
        if work.covers(path, layer)
    )
    return (
        known[path],
        tuple((one.removeprefix(f"{path}."), known[one]) for one in inside),
        tuple(sizes),
    )
