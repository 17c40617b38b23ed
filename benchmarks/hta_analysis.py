"""HTA's import of a folder of traces, breakdown of all ranks and critical path of one rank.

Runs in HTA's own environment (``make env-hta``), as ``python hta_analysis.py FOLDER``.
"""

from __future__ import annotations

import json
import sys

from hta.trace_analysis import TraceAnalysis


def main(folder: str) -> None:
    traces = TraceAnalysis(trace_dir=folder)
    breakdown = traces.get_temporal_breakdown(visualize=False)
    path, is_found = traces.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
    print(json.dumps({"ranks": len(breakdown), "path": is_found, "nodes": len(path.nodes)}))


if __name__ == "__main__":
    main(sys.argv[1])
