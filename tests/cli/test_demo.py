import json
from pathlib import Path

from augury.core.plan_file import load_plan
from tests.cli.conftest import Runner


def test_the_whole_loop_on_a_real_training(run: Runner) -> None:
    document = json.loads(run("demo", "--out", "d", "--json").out)
    assert document["run"] == "d/run"
    assert load_plan(Path(document["plan"])).num_ranks == 2
    assert len(document["schedule"]["policies"]) == 9
    diff = document["diff"]
    assert diff["before"]["num_ranks"] == diff["after"]["num_ranks"] == 2
    assert diff["after"]["step_ns"] > 0
    assert diff["policy"] == document["schedule"]["best"]
    again = run("diff", "d/run", "d/planned-run", "--plan", "d/plan.json", "--json")
    assert json.loads(again.out)["result"] == diff
    result = document["result"]
    assert result["num_ranks"] == 2
    assert result["num_steps"] == 18  # two windows of ten, the first step of each left out
    assert result["measured_step_ns"] > 0
    low, high = result["interval_ns"]
    assert low < result["predicted_step_ns"] < high
    outcome = run("whatif", "d/run", "--bandwidth", "0.1x", "--json")
    assert json.loads(outcome.out)["gain_pct"] < 0


def test_finds_its_own_straggler(run: Runner) -> None:
    outcome = run("demo", "--made-up")
    assert outcome.code == 0
    assert "rank 5" in outcome.out
    assert "next: augury replay augury-demo/run.augury" in outcome.out
    assert json.loads(Path("augury-demo/timeline.json").read_text())["traceEvents"]


def test_json(run: Runner) -> None:
    document = json.loads(run("demo", "--made-up", "--out", "d", "--json").out)
    assert document["schema_version"] == 1
    assert document["result"]["critical_path_summary"]["by_rank"][0]["name"] == "rank 5"


def test_keeps_what_is_there(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert run("demo", "--made-up", "--out", "d").code == 0
    outcome = run("demo", "--made-up", "--out", "d")
    assert outcome.code == 2
    assert "--force" in outcome.err
    assert run("demo", "--made-up", "--out", "d", "--force").code == 0
    (tmp_path / "file").write_text("")
    assert run("demo", "--made-up", "--out", "file").code == 2
    assert run("demo", "--made-up", "--out", "file/below").code == 1
