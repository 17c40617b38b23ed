"""``augury diff``: two runs on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from augury.core.plan_file import save_plan
from tests.cli.conftest import Runner
from tests.diagnose.test_compare import faster, plan_of
from tests.ingest.written import MS, Run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    before = Run(tmp_path / "before", change=faster(1.0)).write()
    return before, Run(tmp_path / "after", change=faster(0.8)).write()


def test_says_what_became_of_a_plan(run: Runner, runs: tuple[Path, Path], tmp_path: Path) -> None:
    save_plan(plan_of(100 * MS, 81 * MS), tmp_path / "plan.json")
    outcome = run("diff", *runs, "--plan", tmp_path / "plan.json")
    assert outcome.code == 0
    assert "measured before" in outcome.out
    assert "+20.0 %" in outcome.out
    assert "+19.0 %" in outcome.out
    assert "came true" in outcome.out


def test_json(run: Runner, runs: tuple[Path, Path], tmp_path: Path) -> None:
    save_plan(plan_of(100 * MS, 60 * MS), tmp_path / "plan.json")
    outcome = run("diff", *runs, "--plan", tmp_path / "plan.json", "--json")
    result = json.loads(outcome.out)["result"]
    assert result["gain_pct"] == pytest.approx(20)
    assert result["predicted_gain_pct"] == pytest.approx(40)
    assert result["came_true"] is False


def test_a_gain_can_be_required(run: Runner, runs: tuple[Path, Path]) -> None:
    assert run("diff", *runs, "--require-gain", "15").code == 0
    assert run("diff", *runs, "--require-gain", "25").code == 5
    missed = json.loads(run("diff", *runs, "--require-gain", "25", "--json").out)
    assert missed["result"]["gain_pct"] == pytest.approx(20)
    assert missed["error"]["exit_code"] == 5


def test_bad_input(run: Runner, runs: tuple[Path, Path], tmp_path: Path) -> None:
    missing = run("diff", runs[0], tmp_path / "nowhere")
    assert missing.code == 3
    assert "not a run's folder" in missing.err
    (tmp_path / "plan.json").write_text("{}")
    assert run("diff", *runs, "--plan", tmp_path / "plan.json").code == 3
