"""Paths of modules: which module covers which layer of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.passes.protocol import Scene


def roots_of(module_classes: Mapping[str, str]) -> frozenset[str]:
    """Returns the module that covers all others by a path that is no prefix of theirs: a single
    root is named after its class, the modules in it are not."""
    first = next(iter(module_classes), None)
    if first is None or "." in first:
        return frozenset()
    has_prefix = any(path.startswith(f"{first}.") for path in module_classes)
    return frozenset() if has_prefix else frozenset((first,))


def known_modules(scene: Scene) -> Mapping[str, str]:
    """Returns the class names of all modules. Of a graph without recorded modules, the layers of
    forward and backward are modules of unknown classes, and so are the paths around them."""
    if scene.training.module_classes:
        return scene.training.module_classes
    ops = scene.graph.ops
    is_compute = np.isin(ops.kind, (OpKind.FORWARD, OpKind.BACKWARD)) & (ops.layer != NONE)
    layers = [scene.graph.strings[layer] for layer in np.unique(ops.layer[is_compute]).tolist()]
    found: dict[str, str] = {}
    for layer in layers:
        for path in [*reversed(outer_paths(layer)), layer]:
            found.setdefault(path, "")
    return found


def covers(module: str, layer: str, roots: frozenset[str] = frozenset()) -> bool:
    """Whether a layer is the module or lies inside of it."""
    return layer == module or layer.startswith(f"{module}.") or (module in roots and bool(layer))


def check_modules(
    modules: Iterable[str], known: Mapping[str, str], *, roots: frozenset[str] = frozenset()
) -> None:
    """Raises InputError where a module is not one of the run, or lies within another one."""
    chosen = list(modules)
    unknown = [module for module in chosen if module not in known]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise InputError(
            f"the run has no module {unknown[0]!r:.80}{more}",
            remedy="name modules by their paths in the model, such as"
            f" {next((path for path in known if path not in roots), 'encoder.0')!r:.80}",
        )
    names = set(chosen)
    for module in chosen:
        around = next((one for one in outer_paths(module, roots) if one in names), None)
        if around is not None:
            raise InputError(
                f"module {module!r:.80} lies within {around!r:.80}", remedy="name one of the two"
            )


def outer_paths(module: str, roots: frozenset[str] = frozenset()) -> list[str]:
    """Returns the paths of the modules around a module, innermost first."""
    found = []
    path = module.rpartition(".")[0]
    while path:
        found.append(path)
        path = path.rpartition(".")[0]
    return found + [root for root in roots if root != module]
