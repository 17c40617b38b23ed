"""The names of parameters as recorded runs have them, so that plans made from runs match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Parts of a path that wrappers add.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def own_parameters(module: Any) -> dict[str, Any]:
    """Returns every parameter once, by its first name."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for path, inner in module.named_modules():
        cleaned = [part for part in path.split(".") if part and part not in _WRAPPERS]
        for name, parameter in inner._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found[".".join([*cleaned, name])] = parameter
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
