"""``augury run --plan``: an unmodified program follows a plan and ends with the same loss."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from augury.cli.main import main
from augury.core.plan.plan import Mode, Plan
from augury.core.plan.plan_file import plan_digest, save_plan
from augury.core.plan.plan_status import PlanStatus, TrainingMode
from augury.ingest.open_run import open_run
from tests.capture.jobs import TRAINING, start_ranks, write_training
from tests.runtime.plans import plan_for

pytest.importorskip("torch")

SIZES = {"0.weight": 32 * 64 * 4, "0.bias": 64 * 4, "2.weight": 64 * 4 * 4, "2.bias": 16}
BUCKETS = "print('buckets', model._get_ddp_logging_data()['rebuilt_bucket_sizes'], flush=True)"


def _losses(said: str) -> list[str]:
    return re.findall(r"^loss (.*)$", said, re.MULTILINE)


def _start(
    folder: Path, plan: Plan, *words: str, at_end: str = "", num_steps: int = 12, script: str = ""
) -> list:
    """Each rank is started by itself, under ``augury run``; jobs of many steps have a trial."""
    folder.mkdir(exist_ok=True)
    save_plan(plan, folder / "plan.json")
    program = write_training(folder, at_end=at_end)
    if script:
        program.write_text(script)
    options = ["--steps", "4:8", "-o", str(folder / "run"), "--plan", str(folder / "plan.json")]
    options += [] if num_steps > 100 else ["--no-trial"]
    command = [sys.executable, "-m", "augury", "run", *options, "--force", *words]
    done = start_ranks([*command, str(program), str(num_steps)], num_ranks=2)
    assert [process.returncode for process in done] == [0, 0], done
    return done


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Losses of both ranks under a plan that they cannot follow."""
    plan = plan_for({**SIZES, "3.weight": 400})
    done = _start(tmp_path_factory.mktemp("other"), plan)
    cause = "the plan is not followed: the plan's 5 gradients are not the model's 4"
    assert cause in done[0].stderr
    return [_losses(process.stdout) for process in done]


def test_a_plan_in_pieces_keeps_the_loss(tmp_path: Path, losses: list[list[str]]) -> None:
    """In processes of their own, prepared by the launcher."""
    done = _start(tmp_path, plan_for(SIZES), "--", sys.executable)
    assert "augury: follows the plan: augury, 8 pieces a step" in done[0].stderr
    assert [_losses(process.stdout) for process in done] == losses


def test_hooks_of_all_optimizers_run_in_every_step(tmp_path: Path) -> None:
    """The program's hooks come after those of the launcher, and torch iterates over both."""
    hook = (
        "from torch.optim.optimizer import register_optimizer_step_pre_hook as register\n"
        "seen = []\n"
        "register(lambda *_: seen.append(1))\n"
    )
    script = TRAINING.format(each_step="pass", at_end="print('hooks', len(seen), flush=True)")
    script = script.replace("inputs, targets =", f"{hook}inputs, targets =", 1)
    done = _start(tmp_path, plan_for(SIZES), script=script)
    assert "augury: follows the plan: augury, 8 pieces a step" in done[0].stderr
    assert all("hooks 12" in process.stdout for process in done)


def test_planned_buckets_keep_the_loss(tmp_path: Path, losses: list[list[str]]) -> None:
    plan = plan_for(SIZES, mode=Mode.DDP_BUCKETS, caps=(16, 1024, 9000))
    done = _start(tmp_path, plan, at_end=BUCKETS)
    assert "augury: follows the plan: buckets of" in done[0].stderr
    for process, loss in zip(done, losses, strict=True):
        assert _losses(process.stdout) == loss
        assert "buckets 16, 1024, 8448" in process.stdout


def test_an_unreadable_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    script = write_training(tmp_path)
    assert main(["run", "--plan", str(tmp_path / "plan.json"), str(script), "1"]) == 3
    assert "this is not a plan" in capsys.readouterr().err
    assert main(["run", "--plan", str(tmp_path / "none.json"), str(script), "1"]) == 3


def _status(folder: Path) -> PlanStatus:
    status = open_run(folder / "run").ranks[0].plan
    assert status is not None
    return status


HOOKED = "optimizer.register_step_post_hook(lambda *_: None)"


def test_the_record_says_why_a_plan_is_not_followed(tmp_path: Path) -> None:
    """Also where only the first step of the optimizer shows the reason."""
    plan = plan_for(SIZES)
    script = TRAINING.format(each_step="pass", at_end="").replace(
        "inputs, targets", f"{HOOKED}\ninputs, targets", 1
    )
    done = _start(tmp_path, plan, script=script)
    status = _status(tmp_path)
    assert not status.is_followed
    assert "hooks" in (status.reason or "")
    assert status.reason in done[0].stderr
    assert done[0].stderr.count("the plan is not followed") <= 2  # once for each rank


def test_a_trial_decides(tmp_path: Path) -> None:
    """Blocks of stock and planned steps alternate; windows open afterwards, in the chosen mode; the
    loss is that of stock DDP."""
    plan = plan_for(SIZES)
    done = _start(tmp_path, plan, num_steps=320)
    (line,) = (one for one in done[0].stderr.splitlines() if "trial of" in one)
    assert re.search(r"stock [\d.]+ ms; planned [\d.]+ ms", line)
    status = _status(tmp_path)
    (trial,) = status.trials
    assert trial.digest == status.digest == plan_digest(plan)
    assert {one.mode for one in trial.times} >= {TrainingMode.STOCK, TrainingMode.PLANNED}
    assert all(one.num_blocks >= 4 for one in trial.times)
    assert trial.last_step - trial.first_step < 200
    assert status.is_followed == (trial.winner is TrainingMode.PLANNED)
    assert not status.is_on_trial
    assert status.settled_step is not None
    assert trial.last_step < status.settled_step <= trial.last_step + 8
    stock = _start(tmp_path / "stock", plan_for({**SIZES, "3.weight": 400}), num_steps=320)
    assert [_losses(one.stdout) for one in done] == [_losses(one.stdout) for one in stock]


def test_an_optimizer_replaced_before_all_ranks_are_ready_keeps_the_loss(
    tmp_path: Path, losses: list[list[str]]
) -> None:
    again = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if step == 1 else optimizer"
    script = TRAINING.format(each_step=again, at_end="")
    done = _start(tmp_path, plan_for(SIZES), script=script)
    assert [_losses(process.stdout) for process in done] == losses


def test_a_model_that_is_wrapped_after_its_first_steps_follows_the_plan(tmp_path: Path) -> None:
    """As after a search for the learning rate, or a warm-up without other ranks."""
    warm_up = """
    warm = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.ones(8, 32)).square().mean().backward()
        warm.step()
        warm.zero_grad()
    del warm
    model = nn.parallel"""
    script = TRAINING.format(each_step="pass", at_end="")
    script = script.replace("    model = nn.parallel", warm_up)
    stock = start_ranks([sys.executable, "-c", script, "12"], num_ranks=2)
    done = _start(tmp_path, plan_for(SIZES), script=script)
    assert [_losses(one.stdout) for one in done] == [_losses(one.stdout) for one in stock]
    assert "augury: follows the plan: augury, 8 pieces a step" in done[0].stderr
    assert all("takes no optimizer steps" not in one.stderr for one in done)


SOME_WRAP = """
import os, sys, torch, torch.distributed as dist
from torch import nn
torch.manual_seed(0)
dist.init_process_group("gloo")
group = dist.new_group([0])
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
if dist.get_rank() == 0:
    model = nn.parallel.DistributedDataParallel(model, process_group=group)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 32)).square().mean()
    loss.backward()
    optimizer.step()
dist.barrier()
print("loss", loss.item().hex(), flush=True)
dist.destroy_process_group()
"""


def test_a_model_wrapped_on_some_ranks_keeps_stock_ddp(tmp_path: Path) -> None:
    """The other ranks do not have that model: stock DDP stays, and no rank waits for them."""
    done = _start(tmp_path, plan_for(SIZES), script=SOME_WRAP)
    assert "the plan is not followed: the model is not trained by all ranks" in done[0].stderr
    assert "the plan is not followed: no model is trained by DistributedDataParallel" not in (
        done[0].stderr
    )
    assert all(_losses(one.stdout) for one in done)


def test_a_plan_unreadable_on_one_rank_is_followed_by_none(
    tmp_path: Path, losses: list[list[str]]
) -> None:
    """No rank follows it then."""
    save_plan(plan_for(SIZES), tmp_path / "plan.json")
    script = write_training(tmp_path)
    launcher = tmp_path / "launch.py"
    launcher.write_text(
        "import os, runpy, sys\n"
        "if os.environ['RANK'] == '1':\n    os.environ['AUGURY_PLAN'] += '.none'\n"
        "from augury.runtime.torch.injection import arrange\narrange()\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    )
    environment = {"AUGURY_PLAN": str(tmp_path / "plan.json"), "AUGURY_PLAN_TRIAL": "0"}
    done = start_ranks([sys.executable, str(launcher), "12"], num_ranks=2, **environment)
    assert [one.returncode for one in done] == [0, 0], done
    assert "the plan is not followed" in done[0].stderr
    assert [_losses(one.stdout) for one in done] == losses
