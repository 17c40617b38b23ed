"""Training ends as under stock DDP in every scenario, under every kind of plan."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import pytest

from tests.capture.jobs import start_ranks

torch = pytest.importorskip("torch")
from tests.runtime import scenarios  # noqa: E402
from tests.runtime.trainings import VARIANTS  # noqa: E402

PRECISE_ONLY = ("autocast", "half_precision_parameters")
"""Compared to the bit, with two ranks: rounded values do not stay close."""


def _names() -> list[str]:
    found = []
    for module in pkgutil.iter_modules(scenarios.__path__, f"{scenarios.__name__}."):
        content = vars(importlib.import_module(module.name))
        found += [
            f"{module.name}.{name}"
            for name, value in content.items()
            if callable(value)
            and not name.startswith("_")
            and getattr(value, "__module__", "") == module.name
            and not isinstance(value, type)
        ]
    return found


NAMES = _names()


def _failures(folder: Path, variant: str, num_ranks: int) -> dict[str, str]:
    names = [n for n in NAMES if num_ranks == 2 or n.rpartition(".")[2] not in PRECISE_ONLY]
    report = folder / "report"
    command = [sys.executable, "-m", "tests.runtime.ranks", str(report), variant, *names]
    for process in start_ranks(command, num_ranks=num_ranks):
        assert process.returncode == 0, process.stderr
    failures = {}
    for rank in range(num_ranks):
        results = json.loads(Path(f"{report}.{rank}").read_text())
        assert results.keys() == set(names)
        for name, result in results.items():
            if result["error"] is not None:
                failures[f"rank {rank}, {name}"] = result["error"]
    return failures


@pytest.mark.parametrize(
    ("variant", "num_ranks"),
    [
        pytest.param(
            variant,
            num_ranks,
            marks=() if (variant, num_ranks) == ("pieces", 2) else pytest.mark.more,
        )
        for variant in VARIANTS
        for num_ranks in (2, 3, 4)
    ],
)
def test_training_ends_as_under_stock_ddp(tmp_path: Path, variant: str, num_ranks: int) -> None:
    failures = _failures(tmp_path, variant, num_ranks)
    assert not failures, "\n".join(f"{name}: {error}" for name, error in failures.items())


def test_scenarios_are_found() -> None:
    assert len(NAMES) > 70
