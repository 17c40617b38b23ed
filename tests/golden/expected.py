"""The essential numbers of predictions, small enough to be committed.

``python -m tests.golden.expected [--traces DIR]`` writes ``expected/`` anew, from the runs in
``runs/``. Do so only for a change that is meant to change predictions, and say which.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.predictions import Case, all_cases, in_process, predict

HERE = Path(__file__).parent
RUNS = HERE / "runs"
EXPECTED = HERE / "expected"

LISTED = {
    "ranks": ("rank", "measured_step_ns", "predicted_step_ns", "error_pct", "peak_memory_bytes"),
    "by_kind": ("name", "dur_ns", "num_segments"),
    "by_reason": ("name", "dur_ns", "num_segments"),
    "policies": (
        *("policy", "step_ns", "evaluated_step_ns", "replayed_step_ns", "interval_ns"),
        *("gain_pct", "num_pieces"),
    ),
    "rows": ("strategy", "devices", "step_s", "exposed_comm_s", "memory_bytes", "feasible"),
    "fastest": ("devices", "strategy", "step_s"),
    "links": ("src", "dst", "num_messages", "payload_bytes", "rate_bytes_per_s", "busy_ns"),
    "collectives": ("kind", "algorithm", "count", "size_bytes", "payload_bytes", "num_exact"),
    "compute_changes": ("kind", "before_ns", "after_ns"),
    "clocks": ("rank", "clock"),
    "ledger": ("name", "severity", "count"),
}
"""Fields that are kept of each entry of these lists, in this order."""
DIGESTED = {
    "critical_path": ("op", "rank", "step", "kind", "layer", "start_ns", "dur_ns", "reason"),
    "pieces": (
        *("op", "size_bytes", "num_slices", "first_gradient", "release_ns", "start_ns"),
        *("end_ns", "arrive_ns", "need_ns"),
    ),
    "resources": ("rank", "kind", "num_ops", "busy_pct", "waiting_pct"),
}
"""Lists that are kept as their length and a digest of these fields."""


def essential(answer: dict[str, Any]) -> dict[str, Any]:
    """The exit code and the essential numbers of an answer; a file that was written, as a digest:
    plans are told apart by their contents."""
    kept = {"exit_code": answer["exit_code"], **_of_object(answer["result"])}
    if "written" in answer:
        kept["written"] = answer["written"] and _digest(answer["written"])
    return kept


def _of_object(result: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in result.items():
        if key in LISTED:
            kept[key] = [[entry.get(field) for field in LISTED[key]] for entry in value]
        elif key in DIGESTED:
            rows = [[entry.get(field) for field in DIGESTED[key]] for entry in value]
            kept[key] = [len(rows), _digest(rows)]
        elif isinstance(value, dict):
            kept[key] = _of_object(value)
        elif not isinstance(value, list) or not any(isinstance(e, dict | list) for e in value):
            kept[key] = value
    return kept


def _digest(value: Any) -> str:
    text = json.dumps(_rounded(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded(value: Any) -> Any:
    """Floats to nine digits, which is how predictions are compared."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def essentials(case: Case, scratch: Path) -> dict[str, Any]:
    predictions = predict(case, in_process, scratch)["predictions"]
    return {label: essential(answer) for label, answer in predictions.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, help="a folder of folders of traces")
    options = parser.parse_args()
    EXPECTED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for case in all_cases(RUNS, options.traces, scratch):
            lines = [
                f"{json.dumps(label)}: {json.dumps(kept, separators=(',', ':'))}"
                for label, kept in essentials(case, scratch).items()
            ]
            content = "{\n" + ",\n".join(lines) + "\n}\n"
            (EXPECTED / f"{case.name}.json").write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
