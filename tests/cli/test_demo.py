import json
import sys
from pathlib import Path
from typing import Any

import pytest

from augury.core.plan.plan_file import load_plan
from augury.core.trace.trace_file import write_trace
from augury.demo.loop import DemoLoop
from tests.build.recorded_runs import ddp_run
from tests.cli.conftest import Runner


@pytest.mark.more
def test_the_demo_records_plans_and_compares_a_real_training(run: Runner) -> None:
    document = json.loads(run("demo", "--out", "d", "--json").out)
    assert document["run"] == "d/run"
    assert len(document["schedule"]["policies"]) == 9
    # Next to other load, noise may hide the gain of a plan: then there is no plan.
    assert document["schedule"]["can_pay"] == (document["plan"] is not None)
    if document["plan"] is not None:
        _as_planned(run, document)
    result = document["result"]
    assert result["num_ranks"] == 2
    assert result["num_steps"] == 18  # two windows of ten, the first step of each left out
    assert result["measured_step_ns"] > 0
    assert document["diagnosis"]["measured_step_ns"] == result["measured_step_ns"]
    assert document["diagnosis"]["verdict"][1:] in Path(document["page"]).read_text()
    low, high = result["interval_ns"]
    assert low < result["predicted_step_ns"] < high
    outcome = run("whatif", "d/run", "--bandwidth", "0.1x", "--json")
    assert json.loads(outcome.out)["gain_pct"] < 0


def _as_planned(run: Runner, document: dict[str, Any]) -> None:
    assert load_plan(Path(document["plan"])).num_ranks == 2
    diff = document["diff"]
    assert diff["before"]["num_ranks"] == diff["after"]["num_ranks"] == 2
    assert diff["after"]["step_ns"] > 0
    again = run("diff", "d/run", "d/planned-run", "--plan", "d/plan.json", "--json")
    if diff["policy"] is None:  # the trial in the job kept stock DDP
        assert again.code == 3
        assert "did not follow the plan" in again.err
    else:
        assert diff["policy"] == document["schedule"]["best"]
        assert json.loads(again.out)["result"] == diff


def test_the_synthetic_demo_finds_its_straggler(run: Runner) -> None:
    outcome = run("demo", "--synthetic")
    assert outcome.code == 0
    assert "rank 5" in outcome.out
    assert "waiting for rank 5: " in outcome.out
    assert "straggler-compute: gain " in outcome.out
    page = Path("augury-demo/report.html")
    assert f"wrote {page}" in outcome.out
    assert page.resolve().as_uri() in outcome.out
    assert "Waiting for rank 5: " in page.read_text()
    assert "next: augury replay augury-demo/run.augury" in outcome.out
    assert json.loads(Path("augury-demo/timeline.json").read_text())["traceEvents"]


def test_missing_torch_is_reported(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # the import error of Python
    outcome = run("demo", "--json")
    assert outcome.code == 0
    assert "PyTorch is not installed here" in outcome.err
    assert f"{sys.executable} -m pip install 'torch==2.13.*'" in outcome.err
    assert json.loads(outcome.out)["graph"] == "augury-demo/run.augury"


def test_the_earlier_name_of_the_option_still_works(run: Runner) -> None:
    document = json.loads(run("demo", "--made-up", "--json").out)
    assert document["graph"] == "augury-demo/run.augury"
    assert "--made-up" not in run("demo", "--help").out


def test_json(run: Runner) -> None:
    document = json.loads(run("demo", "--synthetic", "--out", "d", "--json").out)
    assert document["schema_version"] == 1
    assert document["result"]["critical_path_summary"]["by_rank"][0]["name"] == "rank 5"
    assert document["diagnosis"]["verdict"].startswith("waiting for rank 5: ")
    assert document["page"] == "d/report.html"


def test_existing_files_are_kept(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert run("demo", "--synthetic", "--out", "d").code == 0
    outcome = run("demo", "--synthetic", "--out", "d")
    assert outcome.code == 2
    assert "--force" in outcome.err
    assert run("demo", "--synthetic", "--out", "d", "--force").code == 0
    (tmp_path / "file").write_text("")
    assert run("demo", "--synthetic", "--out", "file").code == 2
    assert run("demo", "--synthetic", "--out", "file/below").code == 1


def test_the_loop_ends_where_no_plan_can_pay(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = ddp_run(num_steps=5, ns_per_byte=0.01, latency_ns=1000).trace()

    def record(demo: DemoLoop) -> None:
        demo.run.mkdir()
        write_trace(trace, demo.run)

    def never(demo: DemoLoop) -> None:
        raise AssertionError(f"there is no plan in {demo.out}")

    pytest.importorskip("torch")
    monkeypatch.setattr(DemoLoop, "record", record)
    monkeypatch.setattr(DemoLoop, "follow_plan", never)
    outcome = run("demo", "--out", "d")
    assert outcome.code == 0, outcome.err
    shown = [
        "90 % interval",  # replay
        "Waterfall",  # diagnosis
        "No plan was written, because no plan pays off here",
        "wrote d/report.html",
    ]
    assert sorted(shown, key=outcome.out.index) == shown
    assert Path("d/report.html").stat().st_size > 0
    document = json.loads(run("demo", "--out", "e", "--json").out)
    assert document["plan"] is document["planned_run"] is document["diff"] is None
    assert not Path("e/plan.json").exists()
