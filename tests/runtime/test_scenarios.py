"""Parameters end with stock DDP's bits, whatever a program does between steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.capture.jobs import start_ranks

torch = pytest.importorskip("torch")
from tests.runtime import scenarios  # noqa: E402

NAMES = [
    name
    for name, value in vars(scenarios).items()
    if callable(value)
    and not name.startswith("_")
    and getattr(value, "__module__", "") == scenarios.__name__
    and not isinstance(value, type)
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, str]]]:
    report = tmp_path_factory.mktemp("ranks") / "report"
    done = start_ranks(
        [sys.executable, "-m", "tests.runtime.ranks", str(report), scenarios.__name__, *NAMES],
        num_ranks=2,
    )
    for process in done:
        assert process.returncode == 0, process.stderr
    return [json.loads(Path(f"{report}.{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_scenario(name: str, results: list[dict[str, dict[str, str]]]) -> None:
    for rank in results:
        assert rank[name]["error"] is None, rank[name]["error"]
