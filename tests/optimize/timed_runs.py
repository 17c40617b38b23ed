"""Recorded runs whose modules were timed, and whose layers are in blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from augury.core.string_table import StringTable
from augury.core.trace.module_timing import AS_RECORDED, ModuleTiming
from augury.core.trace.trace import Trace
from augury.core.trace.trace_file import write_trace
from augury.ingest.open_run import open_run

RUNS = Path(__file__).parents[1] / "golden/runs"
ALONE_NS = 1_000_000
_LAYER = re.compile(r"(augury\.module: )?([0-9]+)(\..*)?")


def timed(
    run: str, folder: Path, ratios: Mapping[str, float], *, block: int = 0, trouble: str = ""
) -> Path:
    """Writes a recorded run to ``folder``, with times of all modules by variant, as ratios to those
    of the program itself. ``block`` numbers of layers become one module; ``trouble`` is the reason
    why the first module cannot run in any variant."""
    trace = open_run(RUNS / run)
    if block:
        trace = _in_blocks(trace, block)
    ranks = []
    for facts in trace.ranks:
        timings = [
            _timing(path, variant, ratio, trouble if place == 0 and variant else "")
            for place, path in enumerate(path for path in facts.modules if "." in path or not block)
            for variant, ratio in {AS_RECORDED: 1.0, **ratios}.items()
        ]
        ranks.append(replace(facts, module_timings=timings))
    folder.mkdir()
    write_trace(trace.evolve(ranks=ranks), folder)
    return folder


def _timing(path: str, variant: str, ratio: float, trouble: str) -> ModuleTiming:
    if trouble:
        return ModuleTiming(modules=[path], variant=variant, trouble=trouble)
    times = [round(ALONE_NS * ratio)] * 9
    return ModuleTiming(modules=[path], variant=variant, forward_ns=times, backward_ns=times)


def _in_blocks(trace: Trace, size: int) -> Trace:
    def renamed(name: str) -> str:
        found = _LAYER.fullmatch(name)
        if found is None:
            return name
        number = int(found.group(2))
        path = f"blocks.{number // size}.{number % size}"
        return f"{found.group(1) or ''}{path}{found.group(3) or ''}"

    ranks = []
    for facts in trace.ranks:
        classes: dict[str, str] = {}
        for path, name in facts.modules.items():
            new = renamed(path)
            if new != path:
                classes.setdefault("blocks", "ModuleList")
                classes.setdefault(new.rpartition(".")[0], "Block")
            classes[new] = "Linear" if "BatchNorm" in name else name
        ranks.append(replace(facts, modules=classes))
    return trace.evolve(strings=StringTable.of(map(renamed, trace.strings)), ranks=ranks)
