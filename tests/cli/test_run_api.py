"""``augury.open``: one call does what a verb does, with the same figures."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import augury
from augury.core.errors import InputError, UsageError
from augury.core.plan.plan_file import load_plan
from augury.core.trace.trace_file import write_trace
from augury.report.answer import RunAnswer
from tests.build.recorded_runs import ddp_run
from tests.cli.conftest import Runner
from tests.report.conftest import HOSTILE_NAMES

RUN = ddp_run(num_steps=4, slower={1: 1.3}, buckets=((0, 1, 2), (3,)), ns_per_byte=4.0).trace()
FASTER = ddp_run(num_steps=4, buckets=((0, 1, 2), (3,)), ns_per_byte=4.0).trace()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, trace in (("recorded", RUN), ("faster", FASTER)):
        (tmp_path / name).mkdir()
        write_trace(trace, tmp_path / name)
    return tmp_path / "recorded"


def document(run: Runner, *words: str | Path) -> dict[str, Any]:
    return json.loads(run(*words, "--json").out)


def answers(opened: augury.Run) -> list[RunAnswer]:
    return [
        opened.replay(),
        opened.whatif(bandwidth="2x"),
        opened.schedule(policy=["ddp", "p3"]),
        opened.diff(opened.path.with_name("faster")),
    ]


def test_results_equal_those_of_the_verbs(run: Runner, folder: Path) -> None:
    after = folder.with_name("faster")
    said = [
        document(run, "replay", folder),
        document(run, "whatif", folder, "--bandwidth", "2x"),
        document(run, "schedule", folder, "--policy", "ddp,p3"),
        document(run, "diff", folder, after),
    ]
    assert [json.loads(answer.to_json()) for answer in answers(augury.open(folder))] == said


def test_a_run_has_its_documented_properties(folder: Path) -> None:
    run = augury.open(folder)
    assert run.ranks == [0, 1]
    assert run.measured_step_ns == run.replay().measured_step_ns
    assert [anomaly.name for anomaly in run.warnings] == [a.name for a in run.graph.ledger]
    assert repr(run) == f"augury.open('{folder}')"


def test_files_are_read_once(folder: Path) -> None:
    run = augury.open(folder)
    first = run.replay().result
    for file in folder.iterdir():
        file.unlink()
    assert run.replay().result == first
    assert run.schedule(policy="p3").num_ranks == 2


def test_results_have_a_text_and_a_notebook_form(folder: Path) -> None:
    for answer in answers(augury.open(folder)):
        assert len(str(answer).splitlines()) > 3
        assert answer._repr_html_().startswith("<pre")
        assert "result" in dir(answer)


def test_results_and_runs_can_be_pickled(folder: Path) -> None:
    run = augury.open(folder)
    for answer in answers(run):
        again = pickle.loads(pickle.dumps(answer))
        assert again.result == answer.result
        assert str(again) == str(answer)
    assert pickle.loads(pickle.dumps(run)).ranks == [0, 1]


def test_unknown_fields_are_attribute_errors(folder: Path) -> None:
    answer = augury.open(folder).replay()
    with pytest.raises(AttributeError):
        _ = answer.nonsense
    assert answer.predicted_step_ns == answer.result.predicted_step_ns


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_hostile_names_stay_text_in_a_notebook(tmp_path: Path, name: str) -> None:
    builder = augury.GraphBuilder()
    builder.op(f"<script>{name}</script>", rank=builder.rank(host="<b>"), work_ns=3)
    augury.save(builder.build(), tmp_path / "hostile.augury")
    html = augury.open(tmp_path / "hostile.augury").replay()._repr_html_()
    assert "<script" not in html
    assert html.count("<") == 2


def test_a_schedule_saves_its_plan_plot_and_problem(folder: Path, tmp_path: Path) -> None:
    answer = augury.open(folder).schedule()
    written = answer.save_plan(tmp_path / "plan.json")
    if answer.can_pay:
        assert load_plan(tmp_path / "plan.json") == answer.make_plan()
        assert json.loads(answer.to_json())["plan"] == str(written)
    else:
        assert written is None
    answer.save_plot(tmp_path / "plot.svg")
    answer.save_problem(tmp_path / "problem.json")
    again = augury.open(tmp_path / "problem.json").schedule(policy="p3")
    assert again.num_gradients == answer.num_gradients


def test_timelines_and_tables_are_written(folder: Path, tmp_path: Path) -> None:
    run = augury.open(folder)
    written = run.report(tmp_path / "t.json")
    assert written is not None
    assert written.num_events > 0
    assert run.replay().write(tmp_path / "t.parquet") is None
    with pytest.raises(UsageError):
        run.report(tmp_path / "t.json")
    with pytest.raises(UsageError):
        run.report(tmp_path / "t.txt")


def test_errors_have_a_remedy(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        augury.open(tmp_path / "missing")
    with pytest.raises(UsageError, match="no change is named"):
        augury.open(folder).whatif()
    with pytest.raises(UsageError):
        augury.open(folder, max_bytes="much")
    augury.save(augury.open(folder).graph, tmp_path / "x.augury")
    with pytest.raises(UsageError, match="no wire record"):
        augury.open(tmp_path / "x.augury").replay(fine=True)


def test_a_graph_in_memory_is_opened_like_its_file(
    folder: Path, tmp_path: Path, run: Runner
) -> None:
    graph = augury.open(folder).graph
    augury.save(graph, tmp_path / "x.augury")
    opened = augury.open(graph)
    assert opened.graph is graph
    assert opened.path == Path("<graph>")
    assert json.loads(opened.replay().to_json()) == document(run, "replay", tmp_path / "x.augury")
    change = opened.whatif(bandwidth="2x")
    assert change.result == augury.open(tmp_path / "x.augury").whatif(bandwidth="2x").result
    assert pickle.loads(pickle.dumps(opened)).ranks == [0, 1]
    with pytest.raises(UsageError, match="no wire record"):
        opened.replay(fine=True)
    with pytest.raises(InputError, match="not a run's folder"):
        opened.diff(folder)


def test_the_oracle_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def predict_strategies(*args: Any, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(result=SimpleNamespace(asked=(args, options)))

    module = SimpleNamespace(predict_strategies=predict_strategies)
    monkeypatch.setitem(sys.modules, "augury.oracle.predict_strategies", module)
    answer = augury.oracle("resnet50", "abci", devices="4:8")
    assert answer.asked == (("resnet50", "abci"), {"devices": "4:8"})
