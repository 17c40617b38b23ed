"""``augury run --plan``: a program that knows nothing of it follows a plan, to the same loss."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from augury.cli.main import main
from augury.core.plan import Mode, Plan
from augury.core.plan_file import save_plan
from tests.capture.jobs import start_ranks, write_training
from tests.runtime.plans import plan_for

pytest.importorskip("torch")

SIZES = {"0.weight": 32 * 64 * 4, "0.bias": 64 * 4, "2.weight": 64 * 4 * 4, "2.bias": 16}
BUCKETS = "print('buckets', model._get_ddp_logging_data()['rebuilt_bucket_sizes'], flush=True)"


def _losses(said: str) -> list[str]:
    return re.findall(r"^loss (.*)$", said, re.MULTILINE)


def _start(folder: Path, plan: Plan, *words: str, at_end: str = "") -> list:
    """Each rank is started by itself, under ``augury run``."""
    save_plan(plan, folder / "plan.json")
    script = write_training(folder, at_end=at_end)
    options = ["--steps", "4:8", "-o", str(folder / "run"), "--plan", str(folder / "plan.json")]
    command = [sys.executable, "-m", "augury", "run", *options, "--force", *words]
    done = start_ranks([*command, str(script), "12"], num_ranks=2)
    assert [process.returncode for process in done] == [0, 0], done
    return done


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Of both ranks, with a plan that they cannot follow."""
    plan = plan_for({**SIZES, "3.weight": 400})
    done = _start(tmp_path_factory.mktemp("other"), plan)
    cause = "the plan is not followed: the plan's 5 gradients are not the model's 4"
    assert cause in done[0].stderr
    return [_losses(process.stdout) for process in done]


def test_pieces(tmp_path: Path, losses: list[list[str]]) -> None:
    """In processes of their own, which the launcher has prepared."""
    done = _start(tmp_path, plan_for(SIZES), "--", sys.executable)
    assert "augury: follows the plan: augury, 8 pieces a step" in done[0].stderr
    assert [_losses(process.stdout) for process in done] == losses


def test_planned_buckets(tmp_path: Path, losses: list[list[str]]) -> None:
    plan = plan_for(SIZES, mode=Mode.DDP_BUCKETS, caps=(16, 1024, 9000))
    done = _start(tmp_path, plan, at_end=BUCKETS)
    assert "augury: follows the plan: buckets of" in done[0].stderr
    for process, loss in zip(done, losses, strict=True):
        assert _losses(process.stdout) == loss
        assert "buckets 16, 1024, 8448" in process.stdout


def test_no_plan_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    script = write_training(tmp_path)
    assert main(["run", "--plan", str(tmp_path / "plan.json"), str(script), "1"]) == 3
    assert "this is not a plan" in capsys.readouterr().err
    assert main(["run", "--plan", str(tmp_path / "none.json"), str(script), "1"]) == 3
