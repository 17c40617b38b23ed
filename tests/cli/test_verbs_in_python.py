"""Verbs without a run to start from: one call of the Python interface does what each does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import augury
from augury.core.errors import UsageError
from tests.cli.conftest import Runner

TRACE = """{"traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1,
  "ts": 0, "dur": 100},
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 50},
 {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 1, "tid": 1,
  "ts": 100, "dur": 100},
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 110, "dur": 50}
], "distributedInfo": {"rank": 0, "world_size": 1}}
"""


def test_synth_makes_the_graph_of_the_verb(run: Runner, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.augury", tmp_path / "theirs.augury"
    graph = augury.synth(ours, ranks=4, layers=3, straggler=["1:1.5"])
    options = ("--ranks", "4", "--layers", "3", "--straggler", "1:1.5")
    assert run("synth", "-o", theirs, *options).code == 0
    assert graph.num_ranks == 4
    assert ours.read_bytes() == theirs.read_bytes()
    assert augury.synth(ranks=4, layers=3, straggler=["1:1.5"]).num_ops == graph.num_ops


def test_import_answers_as_the_verb(run: Runner, tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json"
    trace.write_text(TRACE)
    answer = augury.import_traces([trace], tmp_path / "ours")
    outcome = run("import", trace, "-o", tmp_path / "theirs", "--json")
    assert outcome.code == 0, outcome.err
    theirs = json.loads(outcome.out)
    assert json.loads(answer.to_json())["result"] == theirs["result"]
    assert answer.num_steps == 2
    assert "1 of 1 rank" in str(answer)
    assert augury.open(answer.path).replay().predicted_step_ns > 0


def test_doctor_checks_as_the_verb(run: Runner) -> None:
    checks = augury.doctor()
    told = json.loads(run("doctor", "--json").out)
    assert [check.name for check in checks] == [check["name"] for check in told["checks"]]


def test_run_records_a_job_and_leaves_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    (job,) = augury.run([sys.executable, "-c", "print('no training')"], out=tmp_path / "run")
    assert job.exit_code == 0
    assert job.summary.is_empty
    assert job.verb_exit_code == 1
    assert dict(os.environ) == before
    with pytest.raises(UsageError, match="needs a plan"):
        augury.run([sys.executable, "-c", "0"], out=tmp_path / "other", repeat_baseline=1)
    assert dict(os.environ) == before


def test_a_wire_record_is_summarized_as_by_the_verb(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    source = Path(__file__).parents[1] / "golden/runs/mlp-2"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    answer = augury.open(folder).wire()
    outcome = run("wire", folder, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(answer.to_json()) == json.loads(outcome.out)
    assert "2 ranks, 10 connections" in str(answer)
