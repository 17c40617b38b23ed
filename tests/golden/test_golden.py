"""Predictions of recorded runs stay what they were, to the nanosecond."""

from __future__ import annotations

import json
import os
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import pytest

from tests.golden.expected import EXPECTED, RUNS, essentials
from tests.golden.predictions import all_cases, differences

SOON = frozenset(
    {
        *("replay", "replay fine", "whatif --bandwidth 0.5x", "whatif --bucket-mb 1"),
        *("whatif --ranks 4", "whatif --compute-scale 0:1.5", "whatif --no-straggler", "wire"),
        *("whatif --perfect-overlap", "whatif --link-bandwidth 1:0.5x", "slow schedule"),
        *("order augury", "order dear", "order --low-risk", "diff", "diff --plan", "synth"),
        "oracle",
    }
)
"""Questions of the test that is run always; the others are asked by ``make test-more``."""
SOON_CASES = frozenset(
    {
        *(f"run-{path.name}" for path in RUNS.iterdir() if path.is_dir()),
        *(path.stem for path in EXPECTED.glob("diff-*.json")),
        *("oracle-resnet50-abci", "oracle-pipeline-gpipe", "oracle-replay-bare"),
        *("synth-gang", "synth-ring", "synth-servers", "synth-1f1b"),
    }
)


def expected_names(*, of_traces: bool) -> list[str]:
    return sorted(
        path.stem for path in EXPECTED.glob("*.json") if path.stem.startswith("trace-") == of_traces
    )


def assert_same(
    name: str, tmp_path: Path, *, traces: Path | None = None, labels: Container[str] | None = None
) -> None:
    """Asks the questions of a case again, or those with these labels."""
    case = next(case for case in all_cases(RUNS, traces, tmp_path) if case.name == name)
    if labels is not None:
        chosen = tuple(each for each in case.questions if each.label in labels)
        case = replace(case, questions=chosen)
    now = essentials(case, tmp_path)
    assert now
    before = json.loads((EXPECTED / f"{name}.json").read_bytes())
    asked = {label: before[label] for label in before if labels is None or label in labels}
    found = list(differences(asked, now))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", sorted(SOON_CASES))
def test_predictions_stay(name: str, tmp_path: Path) -> None:
    assert_same(name, tmp_path, labels=SOON)


@pytest.mark.more
@pytest.mark.parametrize("name", expected_names(of_traces=False))
def test_all_predictions_stay(name: str, tmp_path: Path) -> None:
    if name == "oracle-run":
        pytest.importorskip("torch")
    assert_same(name, tmp_path)


@pytest.mark.more
@pytest.mark.skipif("AUGURY_TRACES" not in os.environ, reason="AUGURY_TRACES is not set")
@pytest.mark.parametrize("name", expected_names(of_traces=True))
def test_predictions_of_imported_traces_stay(name: str, tmp_path: Path) -> None:
    assert_same(name, tmp_path, traces=Path(os.environ["AUGURY_TRACES"]))
