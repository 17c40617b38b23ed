"""Real runs that followed a plan: they replay, and every verb works on them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from augury.core.enums import OpKind
from augury.core.plan.plan import Mode, Plan, communication_of
from augury.core.plan.plan_file import save_plan
from augury.core.trace.trace import Trace
from augury.ingest.open_run import open_run
from augury.schedule.policies.registry import find_policy
from tests.capture.jobs import start_ranks, write_training
from tests.cli.conftest import Runner
from tests.runtime.plans import plan_for, with_order
from tests.runtime.test_run_plan import SIZES

pytest.importorskip("torch")
pytestmark = pytest.mark.more


def record(folder: Path, plan: Plan, num_ranks: int, *, has_trial: bool = False) -> Path:
    save_plan(plan, folder / "plan.json")
    script = write_training(folder)
    options = ["--steps", "4:8,10:14", "-o", str(folder / "run"), "--force"]
    options += ["--plan", str(folder / "plan.json"), *([] if has_trial else ["--no-trial"])]
    command = [sys.executable, "-m", "augury", "run", *options]
    num_steps = "320" if has_trial else "24"
    done = start_ranks([*command, str(script), num_steps], num_ranks=num_ranks)
    assert [process.returncode for process in done] == [0] * num_ranks, done
    assert ("augury: trial of" if has_trial else "augury: follows the plan") in done[0].stderr
    return folder / "run"


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("has_barrier", [False, True])
def test_runs_under_plans_in_pieces_replay(
    tmp_path: Path, run: Runner, num_ranks: int, has_barrier: bool
) -> None:
    plan = plan_for(SIZES, num_ranks=num_ranks)
    plan = with_order(plan, has_barrier=has_barrier)
    folder = record(tmp_path, plan, num_ranks)
    trace = open_run(folder)
    kind = OpKind.SEND if num_ranks == 2 else OpKind.ALL_REDUCE
    # Re-planning may have replaced the plan.
    assert len(communication_of(plan).order.pieces) in _num_sent(trace, kind)
    every_verb(run, folder)
    slower = run("whatif", folder, "--latency", "+20ms", "--json")
    assert json.loads(slower.out)["gain_pct"] < 0


def test_runs_under_planned_buckets_replay(tmp_path: Path, run: Runner) -> None:
    plan = plan_for(SIZES, mode=Mode.DDP_BUCKETS, caps=(16, 1024, 9000))
    every_verb(run, record(tmp_path, plan, 2))


@pytest.mark.parametrize(
    ("policy", "lanes", "num_ranks"),
    [("dear", 1, 2), ("dear", 1, 3), ("dear", 1, 4), ("p3", 2, 2), ("p3", 2, 3), ("p3", 2, 4)],
)
def test_runs_under_halves_and_lanes_replay(
    tmp_path: Path, run: Runner, policy: str, lanes: int, num_ranks: int
) -> None:
    plan = plan_for(SIZES, num_ranks=num_ranks)
    section = communication_of(plan)
    order = replace(find_policy(policy).compile(section.problem), lanes=lanes)
    plan = replace(plan, communication=replace(section, order=order))
    every_verb(run, record(tmp_path, plan, num_ranks))


def test_runs_that_began_with_a_trial_replay(tmp_path: Path, run: Runner) -> None:
    """The replay works for either winner of the trial."""
    folder = record(tmp_path, plan_for(SIZES), 2, has_trial=True)
    every_verb(run, folder)


def every_verb(run: Runner, folder: Path) -> None:
    replayed = run("replay", folder, "--json")
    assert replayed.code == 0, replayed.err
    assert json.loads(replayed.out)["predicted_step_ns"] > 0
    assert run("report", folder, "-o", "timeline.json").code == 0
    assert run("whatif", folder, "--compute-scale", "1.5").code == 0
    planned = run("schedule", folder, "--json")
    assert planned.code == 0, planned.err
    document = json.loads(planned.out)
    assert document["size_bytes"] == sum(SIZES.values())
    assert document["baseline_step_ns"] == json.loads(replayed.out)["predicted_step_ns"]
    assert all(one["trouble"] is None for one in document["policies"])


def _num_sent(trace: Trace, kind: OpKind) -> set[int]:
    """Number of pieces that a rank sent in each step of a window."""
    events = trace.events
    groups = trace.ranks[0].piece_groups
    counts: dict[tuple[int, int, int], int] = {}
    for row in (events.kind == kind).nonzero()[0].tolist():
        if int(events.group[row]) in groups:
            place = int(events.rank[row]), int(events.step[row]), int(events.group[row])
            counts[place] = counts.get(place, 0) + 1
    return {*counts.values()}


def start(folder: Path, script: Path) -> Path:
    options = ["--steps", "4:9", "-o", str(folder / "run"), "--force"]
    command = [sys.executable, "-m", "augury", "run", *options]
    done = start_ranks([*command, str(script), "14"], num_ranks=2)
    assert [process.returncode for process in done] == [0, 0], done
    return folder / "run"


def test_more_ranks_are_predicted_for_a_job_that_broadcasts_buffers(
    tmp_path: Path, run: Runner
) -> None:
    script = write_training(tmp_path)
    script.write_text(script.read_text().replace("nn.ReLU()", "nn.BatchNorm1d(64)"))
    folder = start(tmp_path, script)
    assert (open_run(folder).events.kind == OpKind.BROADCAST).any()
    for num_ranks in ("3", "4", "8"):
        changed = run("whatif", folder, "--ranks", num_ranks)
        assert changed.code == 0, changed.err
    document = json.loads(run("schedule", folder, "--json").out)
    assert all(one["trouble"] is None for one in document["policies"])
    assert document["warnings"] == []


@pytest.mark.parametrize(
    ("each_step", "reason"),
    [
        ("model.module.compile(backend='eager') if step == 1 else None", "the model is compiled"),
        (
            "optimizer.register_step_post_hook(lambda *_: None) if step == 1 else None",
            "the optimizer has step hooks",
        ),
    ],
)
def test_schedule_warns_of_programs_that_the_runtime_refuses(
    tmp_path: Path, run: Runner, each_step: str, reason: str
) -> None:
    folder = start(tmp_path, write_training(tmp_path, each_step=each_step))
    (warning,) = json.loads(run("schedule", folder, "--json").out)["warnings"]
    assert warning.endswith(reason)
