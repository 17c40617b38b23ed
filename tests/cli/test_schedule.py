"""``augury schedule``: policies compared on runs, graphs and bare problems; plans and plots."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as changed

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import StreamKind
from augury.core.graph.graph_file import save_graph
from augury.core.plan.plan import Mode, communication_of
from augury.core.plan.plan_file import load_plan
from augury.core.results import schedule
from augury.core.trace.trace_file import write_trace
from augury.ingest.run_files import run_digest
from augury.passes.communication_order import CommunicationOrder
from augury.passes.pieces.piece_exchange import OrderedPieces
from augury.passes.protocol import Changed, Scene
from augury.schedule.policies.registry import POLICIES
from augury.schedule.problem_file import load_problem
from tests.build.recorded_runs import Run, ddp_run
from tests.cli.conftest import Outcome, Runner
from tests.cli.test_main import one_message
from tests.replay.test_deadlock import crossed

NAMES = [policy.name for policy in POLICIES]
RUN = ddp_run(
    num_steps=5,
    buckets=((0,), (1, 2, 3)),
    ns_per_byte=3.0,
    compute_rate=0.8,
    vary={(0, 1): 1.02, (1, 3): 1.01},
).trace()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "recorded"
    path.mkdir()
    write_trace(RUN, path)
    return path


def asked(run: Runner, path: Path, *options: str) -> dict[str, Any]:
    outcome = run("schedule", path, *options, "--json")
    assert outcome.err == ""
    assert outcome.code == 0
    return json.loads(outcome.out)


def refused(outcome: Outcome, code: int) -> None:
    assert outcome.code == code
    assert one_message(outcome)


def test_every_policy_is_evaluated_on_a_run(run: Runner, folder: Path) -> None:
    document = asked(run, folder)
    assert [one["policy"] for one in document["policies"]] == NAMES
    baseline = json.loads(run("replay", folder, "--json").out)["predicted_step_ns"]
    assert document["baseline_step_ns"] == baseline
    assert document["baseline"] == "recorded"
    assert document["can_pay"]
    assert document["ratio"] > 0.5
    best = min(document["policies"], key=lambda one: one["step_ns"])
    assert document["best"] == best["policy"]
    for one in document["policies"]:
        assert min(one["evaluated_step_ns"], one["step_ns"]) >= document["bound_ns"]
        assert one["gap_pct"] == pytest.approx(100 * (one["step_ns"] / document["bound_ns"] - 1))
        assert one["step_ns"] == one["replayed_step_ns"]
        assert one["step_ns"] == pytest.approx(one["evaluated_step_ns"], rel=0.25)
        low, high = one["interval_ns"]
        assert low < one["step_ns"] < high
        assert one["gain_pct"] == pytest.approx(100 * (1 - one["step_ns"] / baseline), abs=1e-6)
        assert one["transferred"][-1][1] == document["size_bytes"] == 10_000_000
        assert 0 < one["device_use_pct"] <= 100
        assert 0 < one["link_use_pct"] <= 100
    assert document["released"][-1][1] == 10_000_000


def test_json_has_the_documented_fields(run: Runner, folder: Path) -> None:
    documented = (Path(__file__).parents[2] / "docs/cli.md").read_text("utf-8")
    document = asked(run, folder, "--policy", "ddp,augury")
    for struct, shown in (
        (schedule.ScheduleResult, document),
        (schedule.PolicyResult, document["policies"][0]),
        (schedule.PieceResult, document["pieces"][0]),
    ):
        for field in msgspec.structs.fields(struct):
            assert field.name in shown
            assert f"`{field.name}`" in documented or field.name == "schema_version", field.name


def test_the_best_policy_is_written_as_a_plan(run: Runner, folder: Path, tmp_path: Path) -> None:
    outcome = run("schedule", folder, "-o", "plan.json")
    assert outcome.code == 0
    assert "next: augury run --plan plan.json --out planned-run -- torchrun" in outcome.out
    plan = load_plan(tmp_path / "plan.json")
    section = communication_of(plan)
    document = asked(run, folder, "-o", "plan.json", "--force")
    assert document["plan"] == "plan.json"
    assert section.order.policy == document["best"]
    assert plan.num_ranks == 2
    assert plan.prediction is not None
    assert plan.prediction.baseline_ns == document["baseline_step_ns"]
    assert plan.prediction.without_ns == {"communication": document["baseline_step_ns"]}
    assert plan.run_digest == run_digest(folder)
    assert plan.prediction.gain_pct == pytest.approx(
        max(one["gain_pct"] for one in document["policies"])
    )
    assert {gradient.name for gradient in section.problem.gradients} == {
        f"parameter{i}" for i in range(4)
    }
    refused(run("schedule", folder, "-o", "plan.json"), 2)


def test_low_risk_stays_with_ddp(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "one-bucket"
    folder.mkdir()
    write_trace(ddp_run(num_steps=5, buckets=((0, 1, 2, 3),), ns_per_byte=3.0).trace(), folder)
    document = asked(run, folder, "--low-risk", "-o", "plan.json")
    assert "ddp-list" in [one["policy"] for one in document["policies"]]
    assert all(one["is_stock_ddp"] and one["has_barrier"] for one in document["policies"])
    section = communication_of(load_plan(tmp_path / "plan.json"))
    assert section.mode is Mode.DDP_BUCKETS
    assert sum(section.bucket_caps_bytes) == 10_000_000
    refused(run("schedule", folder, "--low-risk", "--policy", "p3"), 2)


@pytest.mark.parametrize("options", [["--bandwidth", "50x", "--latency", "0.01x"], ["--low-risk"]])
def test_no_plan_is_written_where_none_can_pay(
    run: Runner, folder: Path, tmp_path: Path, options: list[str]
) -> None:
    """In the second run, stock DDP already has its best buckets."""
    path = tmp_path / "plan.json"
    outcome = run("schedule", folder, *options, "-o", path)
    assert outcome.code == 0
    assert "Leave the run as it is" in " ".join(outcome.out.split())
    assert "no plan was written" in outcome.out
    assert "next: augury run" not in outcome.out
    assert not path.exists()
    document = asked(run, folder, *options, "-o", str(path))
    assert document["plan"] is None
    assert not document["can_pay"]
    path.write_text("mine")
    assert run("schedule", folder, *options, "-o", path, "--force").code == 0
    assert path.read_text() == "mine"


def test_a_policy_that_cannot_be_replayed_is_marked(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = CommunicationOrder.apply

    def broken(self: CommunicationOrder, scene: Scene, pieces: OrderedPieces) -> Changed:
        changed = whole(self, scene, pieces)
        if pieces.order.policy not in ("p3", "prophet"):
            return changed
        return replace(changed, scene=replace(changed.scene, graph=crossed(["AB", "BA"])))

    monkeypatch.setattr(CommunicationOrder, "apply", broken)
    document = asked(run, folder, "--policy", "ddp,p3,augury")
    trouble = {one["policy"]: one["trouble"] for one in document["policies"]}
    assert trouble["ddp"] is trouble["augury"] is None
    assert "which Augury made, deadlocks" in trouble["p3"]
    assert document["best"] != "p3"
    shown = run("schedule", folder, "--policy", "ddp,p3,augury").out
    assert "failed" in shown
    assert "p3 could not be replayed: the changed graph, which Augury made" in shown
    alone = asked(run, folder, "--policy", "p3", "-o", "plan.json")
    assert alone["plan"] is None
    assert not alone["can_pay"]


def test_programs_that_the_runtime_refuses_are_reported(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    folder.mkdir()
    ranks = [changed(facts, refusals=["it is compiled"]) for facts in RUN.ranks]
    write_trace(RUN.evolve(ranks=ranks), folder)
    (warning,) = asked(run, folder, "--policy", "ddp,augury")["warnings"]
    assert "run --plan` will not follow a plan in this job" in warning
    assert warning.endswith("it is compiled")
    shown = " ".join(run("schedule", folder, "--policy", "ddp,augury").out.split())
    assert "warning `augury run --plan` will not follow a plan" in shown
    assert "it is compiled" in shown


def test_a_run_without_ddp_states_why_no_plan_is_possible(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    folder.mkdir()
    ranks = [changed(facts, refusals=["the parameters are sharded"]) for facts in RUN.ranks]
    bare = type(RUN.gradients)(**{name: [] for name, _ in RUN.gradients.schema()})
    write_trace(RUN.evolve(ranks=ranks, gradients=bare), folder)
    outcome = run("schedule", folder)
    refused(outcome, 3)
    assert "in which bucket: the parameters are sharded" in " ".join(outcome.err.split())


@pytest.mark.parametrize("clips", [False, True])
def test_a_program_that_clips_gradients_waits_for_all_of_them(
    run: Runner, tmp_path: Path, clips: bool
) -> None:
    """No order lets forward begin earlier, so none without a barrier is planned."""
    job = ddp_run(num_steps=5, ns_per_byte=3.0, detailed=[4])
    if clips:
        norm = Run(50_000, "aten::_foreach_norm")
        programs = [
            [[*items[:-1], norm, items[-1]] for items in steps] for steps in job.job.programs
        ]
        job = replace(job, job=replace(job.job, programs=programs))
    folder = tmp_path / "clipping"
    folder.mkdir()
    write_trace(job.trace(), folder)
    document = asked(run, folder, "--policy", "p3,prophet,augury")
    assert {policy["has_barrier"] for policy in document["policies"]} == {clips}
    assert ("gradients-read" in {one["name"] for one in document["ledger"]}) == clips


def test_plots_are_written(run: Runner, folder: Path, tmp_path: Path) -> None:
    for options, words in (
        ([], ["released", "prophet", "augury"]),
        (["--policy", "p3"], ["Pieces of p3", "needed"]),
    ):
        path = tmp_path / f"{len(options)}.svg"
        asked(run, folder, *options, "--plot", str(path))
        text = path.read_text("utf-8")
        for word in words:
            assert word in text
        root = ET.fromstring(text)
        assert root.tag.endswith("svg")
        assert "href" not in text
    refused(run("schedule", folder, "--plot", "picture.png"), 2)


def test_a_page_is_written(run: Runner, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "schedule.html"
    result = asked(run, folder, "--page", str(page))
    text = page.read_text("utf-8")
    assert all(f">{one['policy']}<" in text for one in result["policies"])
    refused(run("schedule", folder, "--page", page), 2)
    refused(run("schedule", folder, "--page", "page.svg"), 2)


def test_a_saved_problem_gives_the_same_answers(run: Runner, folder: Path, tmp_path: Path) -> None:
    of_run = asked(run, folder, "--problem", "problem.json")
    assert load_problem(tmp_path / "problem.json").num_ranks == 2
    alone = asked(run, tmp_path / "problem.json")
    assert alone["baseline"] == "ddp"
    for one, same in zip(alone["policies"], of_run["policies"], strict=True):
        assert one["replayed_step_ns"] is None
        if one["policy"] == "augury":  # of a run it is chosen by replay, not by the evaluator
            assert one["evaluated_step_ns"] <= same["evaluated_step_ns"]
        if one["policy"] == "prophet":  # in the run it is neither DDP's buckets nor halves
            assert one["evaluated_step_ns"] == same["evaluated_step_ns"]
    slower = asked(run, tmp_path / "problem.json", "--bandwidth", "0.25x", "--latency", "+1ms")
    for one, same in zip(slower["policies"], alone["policies"], strict=True):
        assert one["step_ns"] > same["step_ns"]
    rated = asked(run, tmp_path / "problem.json", "--bandwidth", "1Gbit/s", "--latency", "2x")
    assert rated["ns_per_byte"] == pytest.approx(8.0)


def test_another_network_changes_the_problem(run: Runner, folder: Path) -> None:
    slow = asked(run, folder, "--bandwidth", "0.5x", "--policy", "ddp,augury")
    fast = asked(run, folder, "--bandwidth", "50x", "--latency", "0.01x", "--policy", "ddp,augury")
    assert slow["baseline_step_ns"] > fast["baseline_step_ns"]
    assert slow["can_pay"]
    assert not fast["can_pay"]
    assert slow["measured_step_ns"] is None
    shown = run("schedule", folder, "--bandwidth", "50x", "--latency", "0.01x").out
    assert "Scheduling does not pay off here" in shown


def test_graphs_are_accepted(run: Runner, folder: Path, tmp_path: Path) -> None:
    save_graph(build_recorded(RUN), tmp_path / "recorded.augury")
    of_graph = asked(run, tmp_path / "recorded.augury", "--policy", "ddp")
    of_run = asked(run, folder, "--policy", "ddp")
    assert of_graph["policies"] == of_run["policies"]
    for scheme in ("allreduce", "ps"):
        path = tmp_path / f"{scheme}.augury"
        assert run("synth", "-o", path, "--scheme", scheme, "--ranks", "2").code == 0
        document = asked(run, path)
        assert document["scheme"] == {"allreduce": "all-reduce", "ps": "parameter-server"}[scheme]
        assert document["size_bytes"] == 100_000_000
        assert len(document["policies"]) == len(NAMES)
    assert run("synth", "-o", tmp_path / "ring.augury", "--algorithm", "ring").code == 0
    refused(run("schedule", tmp_path / "ring.augury"), 3)


def test_the_terminal_output_has_all_parts(run: Runner, folder: Path) -> None:
    shown = run("schedule", folder).out
    for name in NAMES:
        assert name in shown
    for words in ("Policies", "lower bound for any order", "Released and arrived", "best: "):
        assert words in shown
    # Modules were not recorded and the network was not measured.
    assert "no detailed step shows" in shown
    assert "next: augury schedule" in shown


def test_buckets_with_unused_parameters_are_named(run: Runner, tmp_path: Path) -> None:
    """Their gradients travel, although backward makes none: the job does use DDP."""
    other = tmp_path / "unused"
    other.mkdir()
    sizes = RUN.gradients.size_bytes - 400_000 * (RUN.gradients.order == 1)
    write_trace(RUN.evolve(gradients=replace(RUN.gradients, size_bytes=sizes)), other)
    outcome = run("schedule", other)
    refused(outcome, 3)
    assert "as where parameters are not used" in outcome.err
    assert "requires_grad=False" in outcome.err
    optimized = run("optimize", other)
    assert optimized.code == 0
    assert "as where parameters are not used" in " ".join(optimized.out.split())


def test_runs_on_devices_are_told_why_they_have_no_plan(run: Runner, tmp_path: Path) -> None:
    """Their record has DDP's gradients, but not the kernels that make them."""
    kind = RUN.streams.kind.copy()
    kind[kind == StreamKind.COMMUNICATION] = StreamKind.DEVICE
    write_trace(RUN.evolve(streams=replace(RUN.streams, kind=kind)), tmp_path)
    outcome = run("schedule", tmp_path)
    refused(outcome, 3)
    assert "not known on devices" in outcome.err
    assert "freeze" not in outcome.err


def test_the_next_command_makes_the_plan_that_is_shown(run: Runner, folder: Path) -> None:
    assert run("schedule", folder).out.endswith(f"next: augury schedule {folder} -o plan.json\n")
    options = "--policy prophet,augury --bandwidth 0.9x --latency 2x"
    outcome = run("schedule", folder, *options.split())
    assert outcome.out.endswith(f"next: augury schedule {folder} {options} -o plan.json\n")


def test_the_next_command_after_a_plan_is_the_recorded_job(
    run: Runner, folder: Path, tmp_path: Path
) -> None:
    """Where it would not be the same after printing, or is very long, an example stands for it."""
    outcome = run("schedule", folder, "-o", "plan.json")
    follow = "next: augury run --plan plan.json --out planned-run --"
    assert outcome.out.endswith(f"{follow} torchrun ... train.py\n")
    job = ["torchrun", "--nproc-per-node", "2", "my train.py", "--lr", "$LR"]
    quoted = ["train.py", *["model.layers=['a','b']"] * 60]
    odd = ["python", "-c", "print(1)\nprint(2)"], ["train.py", "\x1b[31m"], ["x" * 5000], quoted
    for number, words in enumerate([job, *odd]):
        other = tmp_path / str(number)
        other.mkdir()
        ranks = [changed(facts, job_command=words) for facts in RUN.ranks]
        write_trace(RUN.evolve(ranks=ranks), other)
        said = run("schedule", other, "-o", "plan.json", "--force").out.splitlines()[-1]
        assert shlex.split(said.partition(" -- ")[2]) == (
            job if words is job else ["torchrun", "...", "train.py"]
        )
    replayed = run("replay", tmp_path / "0", "--plan", "plan.json")
    assert f"{follow} torchrun --nproc-per-node 2 'my train.py' --lr '$LR'" in replayed.out


def test_unknown_policies_are_refused(run: Runner, folder: Path) -> None:
    outcome = run("schedule", folder, "--policy", "ddp,wizard")
    refused(outcome, 2)
    assert "choose one of" in outcome.err
