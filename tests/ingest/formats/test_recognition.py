"""Formats are recognized by content, in files, folders, archives and merged files."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.core.errors import FileFormatError, InputError
from augury.core.trace.trace import Trace
from augury.ingest.foreign_traces import read_foreign
from augury.ingest.formats.shown_path import write_part
from augury.ingest.imported import import_traces
from tests.ingest.formats.horovod_writer import HorovodJob
from tests.ingest.formats.simulated_pipeline import Job, numbered, simulate, write_table


def events_of(rank: int, pid: int | str = 7) -> list[dict[str, Any]]:
    """Three annotated steps with an all-reduce that ends on all ranks at the same time."""
    events: list[dict[str, Any]] = []
    for step in range(3):
        begin = 1e6 + 1e5 * step
        base = {"ph": "X", "pid": pid, "tid": 1}
        events += [
            base
            | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": 1e5},
            base | {"cat": "cpu_op", "name": "aten::linear", "ts": begin + 10, "dur": 3e4},
            base
            | {
                "cat": "user_annotation",
                "name": "gloo:all_reduce",
                "tid": 2,
                "ts": begin + 4e4 + rank,
                "dur": 2e4 - rank,
                "args": {"Input Dims": [[1000]], "Input type": ["float"]},
            },
        ]
    return events


def trace_of(rank: int | None, number: int) -> dict[str, Any]:
    content: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events_of(number)}
    if rank is not None:
        content["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 2}
    return content


def encoded(content: object) -> bytes:
    return json.dumps(content).encode()


@pytest.fixture
def expected(tmp_path: Path) -> Trace:
    folder = tmp_path / "plain"
    folder.mkdir()
    for rank in range(2):
        (folder / f"rank{rank}.json").write_bytes(encoded(trace_of(rank, rank)))
    return import_traces([folder])


def same(trace: Trace, expected: Trace) -> bool:
    return (
        trace.events == expected.events
        and trace.steps == expected.steps
        and trace.groups == expected.groups
        and trace.world_size == expected.world_size
    )


def test_names_do_not_matter(tmp_path: Path, expected: Trace):
    (tmp_path / "a.txt").write_bytes(encoded(trace_of(0, 0)))
    (tmp_path / "b.dat").write_bytes(gzip.compress(encoded(trace_of(1, 1))))
    assert same(read_foreign([tmp_path / "a.txt", tmp_path / "b.dat"]), expected)


def test_folders_may_hold_other_files(tmp_path: Path, expected: Trace):
    folder = tmp_path / "job"
    (folder / "deeper").mkdir(parents=True)
    (folder / "rank0.json").write_bytes(encoded(trace_of(None, 0)))
    (folder / "deeper" / "rank1.json").write_bytes(encoded(trace_of(None, 1)))
    (folder / "README.md").write_text("about this job")
    (folder / "config.json").write_text('{"learning_rate": 0.1}')
    trace = read_foreign([folder])
    assert same(trace, expected)
    assert trace.ledger["skipped-file"].count == 2


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_write_nothing_beside_them(tmp_path: Path, expected: Trace, compression: int):
    path = tmp_path / "traces"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("rank0/trace.json", encoded(trace_of(None, 0)))
        archive.writestr("../rank1.json.gz", gzip.compress(encoded(trace_of(None, 1))))
        archive.writestr("notes", "nothing")
    before = {*tmp_path.rglob("*")}
    assert same(read_foreign([path]), expected)
    assert {*tmp_path.rglob("*")} == before


def test_bombs_are_refused(tmp_path: Path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", b"[" + b" " * (8 << 20))
    with pytest.raises(InputError, match="unpacks to more than"):
        read_foreign([path])


def test_damaged_archives_are_refused(tmp_path: Path):
    path = tmp_path / "traces.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", encoded(trace_of(0, 0)))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:60] + b"\0" * 40 + whole[100:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            read_foreign([path])


def merged_list() -> object:
    return [trace_of(0, 0), trace_of(1, 1)]


def merged_by_key() -> object:
    return {f"rank {rank}": trace_of(None, rank) for rank in range(2)}


def merged_by_label() -> object:
    events = []
    for rank in range(2):
        label = {"ph": "M", "name": "process_name", "pid": 100 + rank}
        events.append(label | {"args": {"name": f"Rank {rank}: python"}})
        events += events_of(rank, 100 + rank)
    return {"traceEvents": events}


def merged_by_pid() -> object:
    return {"traceEvents": [e for rank in range(2) for e in events_of(rank, f"rank{rank}")]}


def merged_array() -> object:
    return merged_by_pid()["traceEvents"]  # type: ignore[index]


@pytest.mark.parametrize(
    "content", [merged_list, merged_by_key, merged_by_label, merged_by_pid, merged_array]
)
def test_merged_files_are_split_by_rank(tmp_path: Path, expected: Trace, content: Any):
    path = tmp_path / "all"
    path.write_bytes(encoded(content()))
    trace = read_foreign([path])
    assert [facts.rank for facts in trace.ranks] == [0, 1]
    assert np.array_equal(trace.events.start_ns, expected.events.start_ns)
    assert np.array_equal(trace.events.sequence, expected.events.sequence)


def test_an_array_of_events_may_lack_its_end(tmp_path: Path):
    whole = encoded(events_of(0))
    (tmp_path / "a").write_bytes(whole)
    (tmp_path / "b").write_bytes(whole[:-1] + b",\n")
    one, two = read_foreign([tmp_path / "a"]), read_foreign([tmp_path / "b"])
    assert one.events == two.events
    assert len(one.steps) == 3


def test_a_trace_with_long_facts_before_its_events_is_recognized(tmp_path: Path):
    content = {"deviceProperties": ["x" * 300_000]} | trace_of(0, 0)
    (tmp_path / "a").write_bytes(encoded(content))
    assert len(read_foreign([tmp_path / "a"]).steps) == 3


@pytest.mark.parametrize(
    ("content", "looks_like"),
    [
        (b"", "an empty file"),
        (b"\x7fELF\0\0\0\0", "binary data that begins with 7f 45 4c 46"),
        (b"hello\nworld", "text that begins with 'hello'"),
        (b"a,b,c,d\n1,2,3,4\n", "text with the columns a, b, c, d"),
        (b'{"learning_rate": 0.1, "steps": 5}', "JSON with the keys learning_rate, steps"),
        (b"[1, 2, 3]", "a JSON array with the keys none"),
        (b"PAR1" + b"\0" * 100, "a damaged Parquet file"),
        (b"\x1f\x8b\x08\x00garbage", "a damaged gzip file"),
    ],
)
def test_unknown_content_is_described(tmp_path: Path, content: bytes, looks_like: str):
    (tmp_path / "trace.json").write_bytes(encoded(trace_of(0, 0)))
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_foreign([tmp_path / "trace.json", tmp_path / "other"])
    assert f"other: {looks_like}" in refused.value.cause
    assert "1 x trace of PyTorch's profiler" in refused.value.cause


def test_another_parquet_table_is_described(tmp_path: Path):
    write_table([{"epoch": 1, "loss": 0.5}], tmp_path / "a.parquet")
    with pytest.raises(InputError, match="a Parquet table with the columns epoch, loss"):
        read_foreign([tmp_path / "a.parquet"])


def test_tables_may_be_in_parts_and_in_archives(tmp_path: Path):
    rows = numbered(simulate(Job(num_steps=2, num_micro_batches=2)))
    whole = read_foreign([write_table(rows, tmp_path / "whole.csv")])
    write_table([row for row in rows if row["rank"] < 4], tmp_path / "first.parquet")
    write_table([row for row in rows if row["rank"] >= 4], tmp_path / "second.csv")
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        for name in ("first.parquet", "second.csv"):
            archive.write(tmp_path / name, name)
    assert read_foreign([tmp_path / "both.zip"]).events == whole.events


def test_formats_that_do_not_belong_together_are_refused(tmp_path: Path):
    (tmp_path / "timeline").write_text(HorovodJob().write()[0])
    (tmp_path / "rank0.json").write_bytes(encoded(trace_of(0, 0)))
    with pytest.raises(InputError, match="cannot be read as one run"):
        read_foreign([tmp_path])


def test_a_part_is_read_as_a_file_and_shown_as_its_origin(tmp_path: Path):
    path = write_part(tmp_path, "archive.zip/rank3.json", [b"some ", b"content"])
    assert (path.name, str(path)) == ("rank3.json", "archive.zip/rank3.json")
    assert Path(os.fspath(path)).read_bytes() == path.read_bytes() == b"some content"
    assert path.parent == tmp_path
    copy = pickle.loads(pickle.dumps(path))
    assert (copy.read_bytes(), copy.name) == (b"some content", "rank3.json")


def test_an_archive_whose_members_begin_before_it_is_damaged(tmp_path: Path):
    path = tmp_path / "traces.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rank0.json", encoded(trace_of(0, 1)))
    data = bytearray(path.read_bytes())
    directory = len(data) - 6  # where the directory is said to begin
    begin = int.from_bytes(data[directory : directory + 4], "little")
    data[directory : directory + 4] = (begin + 10).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="damaged"):
        read_foreign([path])
