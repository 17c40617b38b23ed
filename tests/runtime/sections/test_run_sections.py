"""``augury run --plan`` with a plan of several sections: an unmodified program ends with the same
bits, and its record says what was applied."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from augury.core.plan.plan import Mode, Plan, PlanPrediction, PlanSection
from augury.core.plan.plan_file import save_plan
from augury.core.plan.plan_status import PlanStatus
from augury.core.plan.sections import (
    FusionSection,
    LoaderSection,
    RecomputeSection,
    ShardingSection,
    ThreadsSection,
)
from augury.ingest.open_run import open_run
from augury.predict.judge_plan import check_followed, not_applied
from tests.capture.jobs import start_ranks
from tests.runtime.plans import plan_for

pytest.importorskip("torch")
pytestmark = pytest.mark.more

PROGRAM = """
import sys, time, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(320, 32), torch.randn(320, 4))
model = nn.Sequential(nn.Linear(32, 64), nn.Sequential(nn.Dropout(), nn.ReLU()), nn.Linear(64, 4))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
step = 0
while step < int(sys.argv[1]):
    for inputs, targets in loader:
        step += 1
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
sys.stdout.write(f"loss {{loss.item().hex()}}\\n")
sys.stdout.flush()
time.sleep(0.3)
dist.destroy_process_group()
"""
SIZES = {"0.weight": 32 * 64 * 4, "0.bias": 64 * 4, "2.weight": 64 * 4 * 4, "2.bias": 16}
NO_PLAN = "the plan is for 3 ranks"


def _plan(*, mode: Mode = Mode.PIECES, caps: tuple[int, ...] = (), **sections: object) -> Plan:
    applied = (PlanSection.COMMUNICATION, *(PlanSection(name) for name in sections))
    return replace(plan_for(SIZES, mode=mode, caps=caps), applied=applied, **sections)


def _start(folder: Path, plan: Plan, *words: str, steps: int = 60, before: str = "") -> list[str]:
    """Returns what the ranks said; the run is in the folder ``run``."""
    folder.mkdir(exist_ok=True)
    save_plan(plan, folder / "plan.json")
    (folder / "train.py").write_text(PROGRAM.format(before=before))
    options = ["-o", str(folder / "run"), "--plan", str(folder / "plan.json"), "--force", *words]
    command = [sys.executable, "-m", "augury", "run", *options, str(folder / "train.py")]
    done = start_ranks([*command, str(steps)], num_ranks=2)
    assert [process.returncode for process in done] == [0, 0], done
    return [process.stderr + process.stdout for process in done]


def _losses(said: list[str]) -> list[str]:
    return [re.findall(r"^loss (.*)$", one, re.MULTILINE)[0] for one in said]


def _status(folder: Path) -> PlanStatus:
    status = open_run(folder / "run").ranks[0].plan
    assert status is not None
    return status


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    plan = replace(_plan(threads=ThreadsSection(num_threads=1)), num_ranks=3)
    said = _start(tmp_path_factory.mktemp("stock"), plan)
    assert NO_PLAN in said[0]
    return _losses(said)


def test_recomputation_loader_and_pieces_keep_the_loss(tmp_path: Path, stock: list[str]) -> None:
    plan = _plan(
        recompute=RecomputeSection(modules=("1",)),
        loader=LoaderSection(num_workers=1),
        sharding=ShardingSection(stage=1),
    )
    said = _start(tmp_path, plan, "--no-trial")
    assert "follows the plan: augury, 8 pieces a step; recompute (1 modules)" in said[0]
    assert _losses(said) == stock
    status = _status(tmp_path)
    assert status.is_followed
    assert {one.section: one.is_applied for one in status.sections} == {
        PlanSection.COMMUNICATION: True,
        PlanSection.RECOMPUTE: True,
        PlanSection.LOADER: True,
        PlanSection.SHARDING: False,
    }
    assert status.settled_step is not None
    run = open_run(tmp_path / "run")
    check_followed(run, plan)
    assert [*not_applied([run])] == ["sharding"]


@pytest.mark.parametrize("limit_bytes", [None, 10**9])
def test_a_slower_plan_is_followed_for_a_memory_limit_only(
    tmp_path: Path, stock: list[str], limit_bytes: int | None
) -> None:
    """With the default settings, which have a trial."""
    plan = replace(
        _plan(recompute=RecomputeSection(modules=("1",))),
        communication=None,
        applied=(PlanSection.RECOMPUTE,),
        memory_limit_bytes=limit_bytes,
        prediction=PlanPrediction(
            baseline_ns=100, step_ns=130, interval_ns=(120, 140), bound_ns=90
        ),
    )
    said = _start(tmp_path, plan)
    assert _losses(said) == stock
    status = _status(tmp_path)
    assert not status.trials
    assert status.is_followed == (limit_bytes is not None)
    run = open_run(tmp_path / "run")
    if limit_bytes is None:
        assert "the plan is not followed: the plan predicts no gain" in said[0]
        return
    why = "it was made for a memory limit of 1 GB"
    assert f"recompute (1 modules); followed without a trial: {why}" in said[0]
    assert (status.has_trial, status.why_no_trial) == (False, why)
    check_followed(run, plan)
    assert not not_applied([run])


def test_a_plan_for_a_memory_limit_that_cannot_be_applied_leaves_stock_training(
    tmp_path: Path, stock: list[str]
) -> None:
    plan = replace(
        _plan(recompute=RecomputeSection(modules=("missing",))),
        communication=None,
        applied=(PlanSection.RECOMPUTE,),
        memory_limit_bytes=10**9,
    )
    said = _start(tmp_path, plan)
    assert _losses(said) == stock
    assert "the plan is not followed" in said[0]
    status = _status(tmp_path)
    assert not status.is_followed
    assert status.why_no_trial is None


def test_an_optimizer_that_pieces_cannot_have_leaves_the_other_sections(
    tmp_path: Path, stock: list[str]
) -> None:
    """The reason is known at the first step of the optimizer."""
    plan = _plan(recompute=RecomputeSection(modules=("1",)))
    before = "optimizer.register_step_post_hook(lambda *_: None)"
    said = _start(tmp_path, plan, "--no-trial", before=before)
    assert _losses(said) == stock
    assert (
        "section communication of the plan is not applied: the optimizer has step hooks" in said[0]
    )
    applied = {one.section: one.is_applied for one in _status(tmp_path).sections}
    assert applied == {PlanSection.COMMUNICATION: False, PlanSection.RECOMPUTE: True}


def test_compiled_modules_and_buckets_are_tried_in_the_job(tmp_path: Path) -> None:
    plan = _plan(mode=Mode.DDP_BUCKETS, caps=(16, 1024, 9000), fusion=FusionSection(modules=("1",)))
    said = _start(tmp_path, plan, steps=420)
    (line,) = (one for one in said[0].splitlines() if "trial of" in one)
    for name in ("stock", "plan", "without communication", "without fusion"):
        assert f"{name} " in line
    status = _status(tmp_path)
    (trial,) = status.trials
    assert len(trial.times) == 4
    assert not status.is_on_trial
    applied = {one.section for one in status.sections if one.is_applied}
    assert (PlanSection.FUSION in applied) == (PlanSection.FUSION in trial.sections)
