"""Trainings follow the sections of plans, and refuse those that they cannot have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.capture.jobs import start_ranks

pytest.importorskip("torch")
from tests.runtime.sections import changes, refused

NAMES = {
    module.__name__: [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and not isinstance(value, type)
        and value.__module__ == module.__name__
    ]
    for module in (changes, refused)
}


@pytest.mark.more
@pytest.mark.parametrize("module", NAMES)
def test_trainings_end_as_under_stock_ddp(tmp_path: Path, module: str) -> None:
    names = [f"{module}.{name}" for name in NAMES[module]]
    report = tmp_path / "report"
    command = [sys.executable, "-m", "tests.runtime.ranks", str(report), "pieces", *names]
    for process in start_ranks(command, num_ranks=2):
        assert process.returncode == 0, process.stderr
    failures = []
    for rank in range(2):
        results = json.loads(Path(f"{report}.{rank}").read_text())
        assert results.keys() == {*names}
        failures += [
            f"rank {rank}, {name}: {one['error']}{one['said']}"
            for name, one in results.items()
            if one["error"] is not None
        ]
    assert not failures, "\n".join(failures)


def test_scenarios_are_found() -> None:
    assert all(len(names) > 10 for names in NAMES.values())
