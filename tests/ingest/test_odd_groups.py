"""Ranks beyond the world and groups that name a rank twice leave a valid trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from augury.capture.launcher.run_summary import summarize_run
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.imported import import_traces
from augury.ingest.recorded import read_run
from tests.mutated_files.good_files import gpu_trace

from .written import Run


def _imported(folder: Path, trace: dict[str, Any]) -> Trace:
    (folder / "rank0.json").write_text(json.dumps(trace))
    found = import_traces([folder])
    assert list(problems(found)) == []
    return found


def _with_ranks(ranks: str) -> dict[str, Any]:
    trace = gpu_trace(0, has_groups=True)
    for event in trace["traceEvents"]:
        if "Process Group Ranks" in event.get("args", {}):
            event["args"]["Process Group Ranks"] = ranks
    return trace


def test_a_group_implies_the_size_of_the_world(tmp_path: Path):
    trace = _with_ranks("[0, 5]")
    del trace["distributedInfo"]
    found = _imported(tmp_path, trace)
    assert found.world_size == 6
    assert found.ledger["missing-rank"].count == 5


@pytest.mark.parametrize("ranks", ["[0, 999999]", "[-1, 0]", "[0, 1, ...", "é"])
def test_impossible_lists_of_ranks_are_not_believed(tmp_path: Path, ranks: str):
    assert _imported(tmp_path, _with_ranks(ranks)).groups == [[0, 1]]


def test_a_configured_group_that_names_a_rank_twice(tmp_path: Path):
    trace = _with_ranks("?")
    trace["distributedInfo"]["pg_config"][0]["ranks"] = [1, 0, 1]
    assert _imported(tmp_path, trace).groups == [[0, 1]]


def test_arguments_that_are_not_utf_8(tmp_path: Path):
    text = json.dumps(_with_ranks("bytes")).encode().replace(b'"bytes"', b'"\xdd"')
    (tmp_path / "rank0.json").write_bytes(text)
    assert list(problems(import_traces([tmp_path]))) == []


def _change(record: dict[str, Any], **fields: Any) -> None:
    if record["rank"] == 1:
        record.update(fields)


def test_a_recorded_rank_beyond_the_world_is_left_out(tmp_path: Path):
    folder = Run(tmp_path, change=lambda record: _change(record, rank=7)).write()
    found = read_run(folder)
    assert list(problems(found)) == []
    assert [facts.rank for facts in found.ranks] == [0]
    assert found.ledger["rank-beyond-world"].example == "rank 7"


@pytest.mark.parametrize("ranks", [[0, 0, 1], [0, 9], [-1, 0]])
def test_recorded_groups_stay_within_the_world(tmp_path: Path, ranks: list[int]):
    groups = [{"name": "0", "ranks": ranks, "backend": "gloo"}]
    folder = Run(tmp_path, change=lambda record: _change(record, groups=groups)).write()
    found = read_run(folder)
    assert list(problems(found)) == []
    assert found.groups[0] == [0, 1]


def test_deep_nesting_in_a_record_is_noted_in_the_summary(tmp_path: Path):
    (tmp_path / "rank-00000.json").write_text('{"more": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert "unreadable-record" in [one.name for one in summarize_run(tmp_path).ledger]
