"""The names of modules and parameters as recorded runs have them, so that plans from runs match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from augury.core.module_paths import clean_path, common_prefix


def own_parameters(module: Any) -> dict[str, Any]:
    """Returns every parameter once, by its first name."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for path, inner in module.named_modules():
        before = f"{cleaned}." if (cleaned := clean_path(path)) else ""
        for name, parameter in inner._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found[f"{before}{name}"] = parameter
    return found


def trained_parameters(model: Any) -> dict[str, Any]:
    """Returns the parameters whose gradients a DistributedDataParallel exchanges, in its order."""
    exchanged = {id(p) for p in model._module_parameters if p.requires_grad}
    return {name: p for name, p in own_parameters(model.module).items() if id(p) in exchanged}


def matched(names: Sequence[str], planned: Sequence[str]) -> dict[str, str] | None:
    """Returns the name in the model for each planned name; None where they do not match. A run in
    which this model was part of a larger one has longer names, all with the same prefix."""
    if len(names) != len(planned) or not planned:
        return None
    known = set(names)
    for name in names:
        if planned[0].endswith(name):
            before = planned[0].removesuffix(name)
            if before and not before.endswith("."):
                continue
            short = {long: long.removeprefix(before) for long in planned if long.startswith(before)}
            if len(short) == len(known) and set(short.values()) == known:
                return short
    return None


def own_modules(module: Any) -> dict[str, Any]:
    """Returns every module once, by its path; the root is named by its class."""
    found = {clean_path(path): inner for path, inner in module.named_modules() if path}
    return {type(module).__name__: module} | found


def planned_modules(module: Any, paths: Sequence[str]) -> dict[str, Any] | None:
    """Returns the modules for paths of a recorded run; None where they do not match."""
    here = own_modules(module)
    prefix = common_prefix(here, paths)
    if prefix is None:
        return None
    return {path: here[path.removeprefix(prefix)] for path in paths}
