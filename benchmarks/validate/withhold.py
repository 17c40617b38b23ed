"""What a prediction may see of a run: nothing that came after the first change to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def withhold_changes(raw: Path, target: Path, *, num_steps: int) -> None:
    """Copies a recorded run as if its job had ended after ``num_steps`` steps."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(raw, target)
    for path in target.glob("rank-*.json"):
        record = json.loads(path.read_text())
        ends = record["step_end_ns"][:num_steps]
        record["step_end_ns"] = ends
        for key in ("resumed", "step_cpu"):
            if key in record:
                record[key] = [entry for entry in record[key] if entry[0] < num_steps]
        if "calls" in record and ends:
            record["calls"] = [call for call in record["calls"] if call[0] <= ends[-1]]
        path.write_text(json.dumps(record))
