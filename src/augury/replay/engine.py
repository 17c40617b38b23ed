"""Choice of an engine: the kernel if it was built, otherwise the Python reference."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, Protocol

from augury.core.errors import UsageError
from augury.core.graph.graph import Graph
from augury.replay.op_times import OpTimes

EngineName = Literal["auto", "native", "reference"]


class Engine(Protocol):
    """Simulates a graph, or several windows of it in a row: operation ``op`` of window k is
    ``op + k * graph.num_ops``."""

    def __call__(self, graph: Graph, num_windows: int = 1) -> OpTimes: ...


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
