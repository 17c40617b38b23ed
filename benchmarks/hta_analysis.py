"""HTA's answers about a folder of traces: breakdown and overlap of all ranks, critical path of one.

Runs in HTA's own environment (``make env-hta``), as ``python hta_analysis.py FOLDER``. Files are
named ``rank0.json.gz`` and so on. Prints JSON, with the CPU time of the overlap on its own. By
default HTA leaves out the last step; ``--all-steps`` includes it.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hta.trace_analysis import TraceAnalysis


def main(folder: str, *, all_steps: bool) -> None:
    files = {
        int(re.findall(r"\d+", path.name)[0]): str(path) for path in Path(folder).glob("rank*")
    }
    traces = TraceAnalysis(
        trace_files=files, trace_dir=folder, include_last_profiler_step=all_steps
    )
    breakdown = _answer(lambda: _rows(traces.get_temporal_breakdown(visualize=False)))
    before_s = _cpu_s()
    overlap = _answer(lambda: _rows(traces.get_comm_comp_overlap(visualize=False)))
    overlap_s = _cpu_s() - before_s
    path = _answer(lambda: _critical_path(traces, min(files)))
    found = {"breakdown": breakdown, "overlap": overlap, "overlap_s": overlap_s, "path": path}
    print(json.dumps(found))


def _rows(table: Any) -> Any:
    return json.loads(table.to_json(orient="records"))


def _critical_path(traces: TraceAnalysis, rank: int) -> Any:
    """The second step, as HTA recommends; the first one where there is no other."""
    names = traces.t.symbol_table.get_sym_table()
    step = int(sum(name.startswith("ProfilerStep") for name in names) > 1)
    found = traces.critical_path_analysis(rank=rank, annotation="ProfilerStep", instance_id=step)
    if found is None or not found[1]:
        raise ValueError("no critical path")
    parts = found[0].get_critical_path_breakdown()
    return (parts.groupby("bound_by").duration.sum() / parts.duration.sum() * 100).to_dict()


def _answer(ask: Callable[[], Any]) -> Any:
    """The answer, or the error as text: not every trace has what an analysis needs."""
    try:
        return ask()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], all_steps="--all-steps" in sys.argv[2:])
