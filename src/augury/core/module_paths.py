"""Paths of modules without the parts that wrappers add, matched between a run and a program."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Path components that wrappers insert."""


def clean_path(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def common_prefix(here: Collection[str], recorded: Sequence[str]) -> str | None:
    """Returns the prefix without which every recorded path is one of the paths here; None where
    there is none. A run in which this model was part of a larger one has longer paths."""
    known = set(here)
    if not recorded:
        return None
    first = recorded[0]
    parts = first.split(".")
    for place in range(len(parts)):
        prefix = "".join(f"{part}." for part in parts[:place])
        if all(path.startswith(prefix) and path[len(prefix) :] in known for path in recorded):
            return prefix
    return None
