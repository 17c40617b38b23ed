"""``augury run --repeat-baseline``: the same job without and with a plan, alternating."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from augury.core.plan.plan_file import save_plan
from augury.job import alternating_runs
from tests.capture.jobs import start, write_training
from tests.cli.conftest import Runner
from tests.diagnose.test_compare import plan_of
from tests.ingest.written import MS


def test_the_first_run_of_a_pair_alternates() -> None:
    assert alternating_runs(3) == [
        ("baseline", "1"), ("planned", "1"), ("planned", "2"),
        ("baseline", "2"), ("baseline", "3"), ("planned", "3"),
    ]  # fmt: skip


def test_impossible_repetitions_are_refused(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write_training(tmp_path)
    without = run("run", "--repeat-baseline", "2", "--out", tmp_path / "run", "--", script, "9")
    assert without.code == 2
    assert "give --plan" in without.err
    plan = tmp_path / "plan.json"
    save_plan(plan_of(100 * MS, 80 * MS), plan)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    words = ("run", "--repeat-baseline", "2", "--plan", plan, "--out", tmp_path / "run")
    rank = run(*words, "--", script, "9")
    assert rank.code == 2
    assert "start the launcher within" in rank.err
    assert not (tmp_path / "run").exists()


@pytest.mark.more
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_runs_alternate_until_the_first_failure(tmp_path: Path) -> None:
    plan, seen = tmp_path / "plan.json", tmp_path / "seen"
    save_plan(plan_of(100 * MS, 80 * MS), plan)
    told = f"open({str(seen)!r}, 'a').write(str(int('AUGURY_PLAN' in os.environ)))"
    script = write_training(tmp_path, at_end=told)
    augury = ["-m", "augury", "run", "--plan", str(plan), "--repeat-baseline", "1"]
    done = start(
        [sys.executable, *augury, "--out", str(tmp_path / "runs"), "--", str(script), "40"]
    )
    assert done.returncode == 0, done.stderr
    assert seen.read_text() == "01"
    assert len(list((tmp_path / "runs").glob("*/*/rank-00000.json"))) == 2
    assert f"next: augury diff {tmp_path / 'runs' / 'baseline'}" in done.stderr
    failing = write_training(tmp_path, at_end=f"{told}; sys.exit(7)")
    ended = start(
        [sys.executable, *augury, "--out", str(tmp_path / "failed"), "--", str(failing), "40"]
    )
    assert ended.returncode == 7
    assert seen.read_text() == "010"
