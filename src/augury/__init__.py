"""Augury: record, replay, explain and speed up distributed neural-network training.

    run = augury.open("run")
    run.replay().predicted_step_ns
    run.whatif(bandwidth="2x")

Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from augury.api import Run, import_traces, open, oracle, run, synth, validate_oracle
    from augury.capture.api import record
    from augury.core.enums import OpKind
    from augury.core.graph.builder import GraphBuilder
    from augury.core.graph.graph import Graph
    from augury.core.graph.graph_file import load_graph as load
    from augury.core.graph.graph_file import save_graph as save
    from augury.core.timeline import Timeline
    from augury.demo.loop import run_demo as demo
    from augury.doctor import check_all as doctor
    from augury.replay.run import replay
    from augury.runtime.api import apply

    __version__: str

__all__ = [
    "Graph",
    "GraphBuilder",
    "OpKind",
    "Run",
    "Timeline",
    "__version__",
    "apply",
    "demo",
    "doctor",
    "import_traces",
    "load",
    "open",
    "oracle",
    "record",
    "replay",
    "run",
    "save",
    "synth",
    "validate_oracle",
]

_HOMES = {
    "Graph": ("augury.core.graph.graph", "Graph"),
    "GraphBuilder": ("augury.core.graph.builder", "GraphBuilder"),
    "OpKind": ("augury.core.enums", "OpKind"),
    "Run": ("augury.api", "Run"),
    "Timeline": ("augury.core.timeline", "Timeline"),
    "apply": ("augury.runtime.api", "apply"),
    "import_traces": ("augury.api", "import_traces"),
    "load": ("augury.core.graph.graph_file", "load_graph"),
    "open": ("augury.api", "open"),
    "record": ("augury.capture.api", "record"),
    "run": ("augury.api", "run"),
    "save": ("augury.core.graph.graph_file", "save_graph"),
    "synth": ("augury.api", "synth"),
    "validate_oracle": ("augury.api", "validate_oracle"),
}


if not TYPE_CHECKING:  # a type checker would accept every name otherwise

    def __getattr__(name: str) -> object:
        import importlib  # noqa: PLC0415

        if name in ("demo", "doctor", "oracle", "replay"):
            # The subpackages themselves: they can be called (core/callable_package.py).
            return importlib.import_module(f"augury.{name}")
        if name == "__version__":
            return _version()
        if name not in _HOMES:
            raise AttributeError(f"module 'augury' has no attribute {name!r}")
        module, attribute = _HOMES[name]
        value = globals()[name] = getattr(importlib.import_module(module), attribute)
        return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("augury")
    except PackageNotFoundError:
        return "0+source"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
