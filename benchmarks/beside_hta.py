"""What HTA and Augury say about the same traces, as a table: ``python -m benchmarks.beside_hta``.

Needs ``AUGURY_TRACES`` and HTA's environment (``make env-hta``). Shares are those of all ranks and
steps together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import augury
from augury.core.results.diagnosis import Diagnosis, Finding
from augury.core.results.imported_run import ImportResult
from augury.core.units import format_percent
from augury.predict.breakdown import break_down
from benchmarks.import_traces import HTA_PYTHON
from benchmarks.measure import say

SETS = (
    "dlrm8_v100",
    "torchrec_dlrm4_a",
    "torchrec_dlrm4_b",
    "torchrec_resnet18_2",
    "nccl_args_a100",
    "rccl_args_mi300",
    "scale_v100",
    "production_8gpu",
)
_HEADINGS = (
    "traces (ranks)",
    "HTA: idle, compute, non-compute",
    "HTA: overlap",
    "HTA: critical path of the first rank",
    "Augury: verdict",
    "Augury: first findings",
    "Augury: compute, exposed transfer, exposed waiting",
)


def main() -> int:
    traces = os.environ.get("AUGURY_TRACES")
    if traces is None or not HTA_PYTHON.is_file():
        print("needs AUGURY_TRACES, and HTA: make env-hta", file=sys.stderr)
        return 2
    _row(_HEADINGS)
    _row(["---"] * len(_HEADINGS))
    with tempfile.TemporaryDirectory(prefix="augury-beside-") as folder:
        for name in SETS:
            say(name)
            num_ranks, ours = _augury(Path(traces) / name, Path(folder) / name)
            _row([f"`{name}` ({num_ranks})", *_hta(Path(traces) / name), *ours])
    return 0


def _row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _hta(folder: Path) -> list[str]:
    command = [str(HTA_PYTHON), "benchmarks/hta_analysis.py", str(folder), "--all-steps"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"fails: {done.stderr.strip().splitlines()[-1][:60]}", "", ""]
    answers = json.loads(done.stdout.splitlines()[-1])
    if isinstance(answers["breakdown"], str):
        return ["does not read tables", "", ""]
    kinds = ("idle_time(us)", "compute_time(us)", "non_compute_time(us)")
    whole = sum(row["kernel_time(us)"] for row in answers["breakdown"])
    parts = [sum(row[kind] for row in answers["breakdown"]) / whole for kind in kinds]
    overlap = mean(row["comp_comm_overlap_pctg"] or 0 for row in answers["overlap"])
    return [_shares(parts), format_percent(overlap), _path(answers["path"])]


def _path(found: Any) -> str:
    if isinstance(found, str):
        return f"fails: {found[:60]}"
    parts = sorted(found.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {format_percent(pct)}" for name, pct in parts if pct >= 1)


def _augury(traces: Path, out: Path) -> tuple[int, list[str]]:
    files = [path for path in sorted(traces.iterdir()) if path.suffix != ".yaml"]
    imported: ImportResult = augury.import_traces(files, out).result
    run = augury.open(out)
    found: Diagnosis = run.diagnose().result
    ranks = break_down(run.replay().timeline).ranks
    whole = sum(one.step_ns for one in ranks)
    parts = [
        sum(one.compute_ns for one in ranks) / whole,
        sum(one.exposed_transfer_ns for one in ranks) / whole,
        sum(one.exposed_waiting_ns for one in ranks) / whole,
    ]
    findings = "; ".join(map(_finding, found.findings[:3])) or "none"
    return imported.num_ranks, [found.verdict, findings, _shares(parts)]


def _finding(one: Finding) -> str:
    return one.kind if one.gain_pct is None else f"{one.kind} {one.gain_pct:+.1f} %"


def _shares(parts: Sequence[float]) -> str:
    return ", ".join(format_percent(100 * part) for part in parts)


if __name__ == "__main__":
    sys.exit(main())
