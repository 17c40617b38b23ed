"""Ranks of imported traces: stated, named, or numbered in the order of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from augury.core.errors import InputError
from augury.core.trace.trace import Trace
from augury.ingest.foreign_traces import read_foreign
from tests.ingest.synthetic_jobs import Files, Job


@pytest.fixture
def files() -> Files:
    return Job(num_ranks=3, num_steps=2, num_layers=3).files()


def read(
    folder: Path, files: Files, names: list[str], stated: list[int | None], late_us: float = 0
) -> Trace:
    for at, (rank, name) in enumerate(zip(sorted(files), names, strict=True)):
        content = dict(files[rank])
        info = content.pop("distributedInfo", {})
        if stated[at] is not None:
            content["distributedInfo"] = info | {"rank": stated[at]}
        content["traceEvents"] = [
            event | {"ts": event["ts"] + at * late_us} if "ts" in event else event
            for event in content["traceEvents"]
        ]
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return read_foreign([folder])


NOTHING: list[int | None] = [None, None, None]


def test_folders_state_ranks(files: Files, tmp_path: Path):
    names = [f"rank_{rank}/trace.json" for rank in (4, 2, 7)]
    trace = read(tmp_path, files, names, NOTHING)
    assert [facts.rank for facts in trace.ranks] == [2, 4, 7]
    assert "assumed-rank" not in trace.ledger


def test_ranks_are_numbered_in_the_order_of_files(files: Files, tmp_path: Path):
    trace = read(tmp_path, files, ["w1.json", "w2.json", "w10.json"], NOTHING)
    assert [facts.rank for facts in trace.ranks] == [0, 1, 2]
    assert trace.ledger["assumed-rank"].count == 3
    stated = read(tmp_path, files, ["w1.json", "w2.json", "w10.json"], [0, 1, 2])
    assert (stated.events.start_ns == trace.events.start_ns).all()


def test_traces_of_different_times_are_not_numbered(files: Files, tmp_path: Path):
    """They may be windows of one process."""
    with pytest.raises(InputError, match=r"the rank of .* is unknown"):
        read(tmp_path, files, ["a.json", "b.json", "c.json"], NOTHING, late_us=1e6)


def test_names_decide_where_traces_contradict_each_other(files: Files, tmp_path: Path):
    names = ["rank0.json", "rank1.json", "rank2.json"]
    trace = read(tmp_path, files, names, [0, 0, 0])
    assert [facts.rank for facts in trace.ranks] == [0, 1, 2]
    assert trace.ledger["contradictory-rank"].count == 1


@pytest.mark.parametrize(
    ("names", "stated", "said"),
    [
        (["a.json", "b.json", "c.json"], [0, 1, 1], "c.json is a second trace of rank 1"),
        (["a.json", "b.json", "c.json"], [0, 1, None], "the rank of .*c.json is unknown"),
        (["rank0.json", "rank1.json", "c.json"], NOTHING, "the rank of .*c.json is unknown"),
        (["a.json", "b.json", "c.json"], [0, 1, -5], "the rank of .*c.json is unknown"),
    ],
)
def test_other_ranks_are_refused(
    names: list[str], stated: list[int | None], said: str, files: Files, tmp_path: Path
):
    with pytest.raises(InputError, match=said):
        read(tmp_path, files, names, stated)
