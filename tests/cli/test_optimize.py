"""``augury optimize`` finds plans for recorded runs, and ``augury replay --plan`` predicts them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import augury
from augury.core.plan.plan import Mode, communication_of
from augury.core.plan.plan_file import load_plan, save_plan
from augury.core.plan.sections import FusionSection
from augury.core.results.optimization import OptimizeResult
from augury.core.trace.trace_file import write_trace
from augury.ingest.run_files import run_digest
from tests.build.recorded_runs import ddp_run
from tests.cli.conftest import Outcome, Runner
from tests.cli.test_main import one_message
from tests.optimize.timed_runs import RUNS

RUN = ddp_run(
    num_steps=5,
    buckets=((0, 1, 2, 3),),
    ns_per_byte=1.0,
    vary={(0, 1): 1.02, (1, 3): 1.01},
).trace()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "recorded"
    path.mkdir()
    write_trace(RUN, path)
    return path


def asked(run: Runner, *options: str | Path) -> dict[str, Any]:
    outcome = run(*options, "--json")
    assert outcome.err == ""
    assert outcome.code == 0
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def refused(outcome: Outcome, code: int) -> str:
    assert outcome.code == code
    assert one_message(outcome)
    return outcome.err


def test_the_plan_is_written_with_the_prediction_of_the_document(
    run: Runner, folder: Path, tmp_path: Path
) -> None:
    outcome = run("optimize", folder, "-o", "plan.json")
    assert outcome.code == 0
    assert "next: augury run --plan plan.json --out planned-run -- torchrun" in outcome.out
    document = asked(run, "optimize", folder, "-o", "plan.json", "--force")
    assert document["plan"] == "plan.json"
    assert document["schema_version"] == 1
    assert document["can_pay"]
    plan = load_plan(tmp_path / "plan.json")
    assert plan.run_digest == run_digest(folder)
    assert plan.prediction is not None
    assert plan.prediction.step_ns == document["predicted_step_ns"]
    assert list(plan.prediction.interval_ns) == document["interval_ns"]
    assert [one["section"] for one in document["sections"]] == list(plan.applied)
    assert refused(run("optimize", folder, "-o", "plan.json"), 2)


def test_the_same_seed_gives_the_same_document(run: Runner, folder: Path) -> None:
    first, second = (asked(run, "optimize", folder, "--seed", "3") for _ in range(2))
    for document in (first, second):
        document["search"].pop("elapsed_s")
    assert first == second
    assert first["search"]["seed"] == 3


def test_fields_of_the_document_are_those_of_the_result(run: Runner, folder: Path) -> None:
    document = asked(run, "optimize", folder)
    assert document.keys() == {field.name for field in msgspec.structs.fields(OptimizeResult)}
    assert document["plan"] is None
    with_next = run("optimize", folder)
    assert f"next: augury optimize {folder} -o plan.json" in with_next.out
    allowed = run("optimize", folder, "--allow", "rounding", "--only", "communication")
    options = "--allow rounding --only communication"
    assert f"next: augury optimize {folder} {options} -o plan.json" in allowed.out
    effort = "--only communication --budget 2s --seed 3 --starts 2 --max-bytes 1GiB"
    longer = run("optimize", folder, *effort.split())
    assert f"next: augury optimize {folder} {effort} -o plan.json" in longer.out


def test_it_is_as_good_as_schedule_where_only_communication_can_gain(
    run: Runner, folder: Path
) -> None:
    scheduled = asked(run, "schedule", folder, "--policy", "augury")
    optimized = asked(run, "optimize", folder)
    assert optimized["baseline_step_ns"] == scheduled["baseline_step_ns"]
    best_ns = min(one["step_ns"] for one in scheduled["policies"])
    assert optimized["predicted_step_ns"] <= best_ns * 1.005


def test_no_plan_is_written_where_none_can_pay(run: Runner, tmp_path: Path) -> None:
    outcome = run("optimize", RUNS / "conv-2", "-o", "plan.json")
    assert outcome.code == 0
    assert "Leave the run as it is" in " ".join(outcome.out.split())
    assert "no plan was written to plan.json" in outcome.out
    assert "next:" not in outcome.out
    assert not (tmp_path / "plan.json").exists()
    document = asked(run, "optimize", RUNS / "conv-2", "-o", "plan.json")
    assert document["plan"] is None
    assert not document["can_pay"]


def test_a_limit_that_no_plan_meets_has_an_exit_code_of_its_own(run: Runner) -> None:
    message = refused(run("optimize", RUNS / "mlp-2", "--memory-limit", "100kB"), 4)
    assert "100 kB" in message
    outcome = run("optimize", RUNS / "mlp-2", "--memory-limit", "100kB", "--json")
    document = json.loads(outcome.out)
    assert document["error"]["exit_code"] == 4
    assert document["nearest_peak_bytes"] > 100_000
    assert all(one["lines"] for one in document["advice"])


@pytest.mark.parametrize(
    "options",
    [
        ("--allow", "everything"),
        ("--only", "luck"),
        ("--only", "fusion"),
        ("--budget", "soon"),
        ("--memory-limit", "0"),
        ("--memory-limit", "large"),
    ],
)
def test_options_that_name_nothing_are_refused(
    run: Runner, folder: Path, options: tuple[str, str]
) -> None:
    refused(run("optimize", folder, *options), 2)


def test_a_budget_of_no_time_leaves_the_run_as_it_is(run: Runner, folder: Path) -> None:
    document = asked(run, "optimize", folder, "--budget", "0s")
    assert not document["search"]["is_complete"]
    assert document["sections"] == []
    assert document["predicted_step_ns"] == document["baseline_step_ns"]


@pytest.fixture
def planned(run: Runner, folder: Path, tmp_path: Path) -> Path:
    assert run("optimize", folder, "-o", "plan.json").code == 0
    return tmp_path / "plan.json"


def test_replay_predicts_the_plan_as_optimize_did(run: Runner, folder: Path, planned: Path) -> None:
    plan = load_plan(planned)
    assert plan.prediction is not None
    document = asked(run, "replay", folder, "--plan", planned)
    assert document["predicted_step_ns"] == plan.prediction.step_ns
    assert document["baseline_step_ns"] == plan.prediction.baseline_ns
    assert tuple(document["interval_ns"]) == plan.prediction.interval_ns
    assert {one["section"]: one["without_ns"] for one in document["sections"]} == (
        plan.prediction.without_ns
    )
    assert document["measured_step_ns"] is None
    outcome = run("replay", folder, "--plan", planned)
    assert "communication" in outcome.out
    assert f"next: augury run --plan {planned}" in outcome.out


def test_replay_predicts_an_edited_plan(run: Runner, folder: Path, tmp_path: Path) -> None:
    """One bucket for everything is what the run had."""
    assert run("schedule", folder, "--low-risk", "-o", "list.json").code == 0
    plan = load_plan(tmp_path / "list.json")
    section = communication_of(plan)
    assert section.mode is Mode.DDP_BUCKETS
    before = asked(run, "replay", folder, "--plan", "list.json")
    edited = replace(section, bucket_caps_bytes=(1 << 30,))
    save_plan(replace(plan, communication=edited), tmp_path / "edited.json")
    after = asked(run, "replay", folder, "--plan", "edited.json")
    assert after["predicted_step_ns"] > before["predicted_step_ns"]
    assert after["predicted_step_ns"] == pytest.approx(after["baseline_step_ns"], rel=0.02)


def test_a_plan_of_another_run_is_refused(run: Runner, planned: Path) -> None:
    assert "other parameters" in refused(run("replay", RUNS / "mlp-2", "--plan", planned), 3)


def test_sections_that_exclude_each_other_are_refused(
    run: Runner, folder: Path, planned: Path, tmp_path: Path
) -> None:
    plan = load_plan(planned)
    if communication_of(plan).mode is Mode.DDP_BUCKETS:
        assert run("schedule", folder, "-o", "pieces.json").code == 0
        plan = load_plan(tmp_path / "pieces.json")
    assert communication_of(plan).mode is Mode.PIECES
    fused = replace(
        plan,
        fusion=FusionSection(modules=("0",)),
        applied=("fusion", *plan.applied),  # type: ignore[arg-type]
        prediction=None,
    )
    save_plan(fused, tmp_path / "both.json")
    message = refused(run("replay", folder, "--plan", "both.json"), 3)
    assert "cannot be applied together" in message


def test_a_plan_is_predicted_with_whole_collectives_only(
    run: Runner, folder: Path, planned: Path
) -> None:
    refused(run("replay", folder, "--plan", planned, "--fine"), 2)


def test_the_python_interface_answers_alike(run: Runner, folder: Path, tmp_path: Path) -> None:
    document = asked(run, "optimize", folder)
    answer = augury.open(folder).optimize(budget=60, allow=(), only=None)
    assert answer.predicted_step_ns == document["predicted_step_ns"]
    plan = answer.make_plan()
    assert plan is not None
    assert answer.save_plan(tmp_path / "mine.json") == tmp_path / "mine.json"
    assert answer.plan == str(tmp_path / "mine.json")
    assert load_plan(tmp_path / "mine.json") == plan
    replayed = augury.open(folder).replay(plan=plan)
    assert replayed.predicted_step_ns == answer.predicted_step_ns
    assert "communication" in str(replayed)
    assert "sections" in answer.tables
