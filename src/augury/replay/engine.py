"""Choosing an engine: the kernel where it was built, the reference where it was not."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

from augury.core.errors import UsageError
from augury.core.graph import Graph
from augury.replay.schedule import Schedule

EngineName = Literal["auto", "native", "reference"]
Engine = Callable[[Graph], Schedule]


def find_engine(name: EngineName = "auto") -> Engine:
    if name == "native" and not is_native_built():
        raise UsageError(
            "the native engine is not part of this installation",
            remedy="install a C++ compiler and reinstall, or use --engine reference",
        )
    if name == "reference" or not is_native_built():
        from augury.replay import reference  # noqa: PLC0415

        return reference.simulate
    from augury.replay import kernel  # noqa: PLC0415

    return kernel.simulate


def is_native_built() -> bool:
    return find_spec("augury._native") is not None
