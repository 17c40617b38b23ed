"""Hostile files end in an InputError or a line in the ledger: never in another exception, an
invalid trace, or more memory than the limits."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.ledger import Ledger
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.collectives.matching import missing_parts
from augury.ingest.formats.gzip_reader import read_unpacked
from augury.ingest.formats.kineto import nanoseconds, read_kineto
from augury.ingest.imported import import_traces
from augury.ingest.recorded import read_run
from tests.campaigns import campaign
from tests.mutated_files.json_mutations import spoil

from .recorded_plan import PLAN
from .synthetic_jobs import Job
from .trace_variants import is_collective_kernel, write_set
from .written import EPOCH_NS, Run, write_trace_file

NAME = "rank-00001.0.trace.json.gz"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = Run(tmp_path_factory.mktemp("good")).write()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


def damaged(scratch: Path, run: dict[str, bytes], name: str, data: bytes) -> Trace | None:
    """Returns None if the run is refused properly."""
    for own, content in run.items():
        (scratch / own).write_bytes(content)
    (scratch / name).write_bytes(data)
    try:
        trace = read_run(scratch)
    except InputError:
        return None
    assert list(problems(trace)) == []
    return trace


def test_truncated_traces_are_noted(scratch: Path, run: dict[str, bytes]):
    whole = run[NAME]
    for size in range(0, len(whole), max(1, len(whole) // 40)):
        trace = damaged(scratch, run, NAME, whole[:size])
        assert trace is not None
        assert trace.ledger["unreadable-trace"].count == 1


def test_truncated_records_are_noted(scratch: Path, run: dict[str, bytes]):
    whole = run["rank-00001.json"]
    for size in range(0, len(whole) - 1, max(1, len(whole) // 40)):
        trace = damaged(scratch, run, "rank-00001.json", whole[:size])
        assert trace is not None
        assert trace.ledger["unreadable-record"].count == 1
        assert trace.ledger["missing-rank"].example == "rank 1"


@campaign(100)
@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    name=st.sampled_from([NAME, "rank-00001.json", "rank-00000.2.trace.json.gz"]),
)
def test_bytes_changed_at_random(scratch: Path, run: dict[str, bytes], edits, name: str):
    is_packed = name.endswith(".gz")
    data = bytearray(gzip.decompress(run[name]) if is_packed else run[name])
    for place, value in edits:
        data[place % len(data)] = value
    damaged(scratch, run, name, gzip.compress(data, 1) if is_packed else bytes(data))


@campaign(250)
@given(seed=st.integers(0, 10**9), times=st.integers(1, 3))
def test_records_with_wrong_values(scratch: Path, run: dict[str, bytes], seed: int, times: int):
    dice = random.Random(seed)
    record = json.loads(run["rank-00001.json"])
    record["calls"] = [[EPOCH_NS + 10**9, EPOCH_NS + 2 * 10**9, "send", "0", 1, 8, 0]]
    record["plan"] = PLAN
    for _ in range(times):
        record = spoil(record, dice)
    damaged(scratch, run, "rank-00001.json", json.dumps(record).encode())


@campaign(250)
@given(seed=st.integers(0, 10**9), detailed=st.booleans())
def test_traces_with_wrong_values(scratch: Path, run: dict[str, bytes], seed: int, detailed: bool):
    dice = random.Random(seed)
    name = "rank-00001.2.trace.json.gz" if detailed else NAME
    content = json.loads(gzip.decompress(run[name]))
    for _ in range(dice.randint(1, 4)):
        content = spoil(content, dice)
    data = gzip.compress(json.dumps(content).encode(), 1)
    damaged(scratch, run, name, data)
    path = scratch / "alone"
    path.mkdir(exist_ok=True)
    (path / "rank0.json.gz").write_bytes(data)
    try:
        trace = import_traces([path])
    except InputError:
        return
    assert list(problems(trace)) == []


def test_a_bomb_is_not_unpacked(tmp_path: Path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (64 << 20), 9))
    with pytest.raises(LimitError, match="unpacks to more than"):
        read_unpacked(path)


def test_limits_hold_for_plain_files_and_many_members(tmp_path: Path):
    path = tmp_path / "plain.json"
    path.write_bytes(b"x" * 1000)
    with pytest.raises(LimitError):
        read_unpacked(path, max_bytes=999)
    assert len(read_unpacked(path, max_bytes=1000)) == 1000
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert read_unpacked(path) == b"one two"


def test_deep_nesting_is_refused(tmp_path: Path):
    path = tmp_path / "deep.json"
    path.write_text('{"traceEvents": [{"x": ' + "[" * 100_000 + "]" * 100_000 + "}]}")
    with pytest.raises(FileFormatError, match="not a trace of torch's profiler"):
        read_kineto(path, Ledger())


def test_odd_events_are_counted(tmp_path: Path):
    path = tmp_path / "odd.json.gz"
    odd = [
        {"ph": "X", "name": "late", "ts": 1e18, "dur": 1},
        {"ph": "X", "name": "long", "ts": 1, "dur": 1e15},
        {"ph": "X", "name": "backwards", "ts": 1, "dur": -5},
        {"ph": "X", "name": "fine", "ts": 1, "dur": 5},
    ]
    write_trace_file(path, odd)
    ledger = Ledger()
    trace = read_kineto(path, ledger)
    assert ledger["absurd-time"].count == 2
    assert ledger["negative-duration"].count == 1
    assert dict(zip(trace.name, trace.dur_ns.tolist(), strict=True)) == {
        "backwards": 0,
        "fine": 5000,
    }


def test_an_absurd_base_time_is_refused(tmp_path: Path):
    write_trace_file(tmp_path / "odd.json.gz", [], baseTimeNanoseconds=10**19)
    with pytest.raises(FileFormatError, match="absurd base time"):
        read_kineto(tmp_path / "odd.json.gz", Ledger())


@given(st.integers(0, 2 * 10**15), st.integers(0, 999))
def test_microseconds_become_nanoseconds(whole: int, thousandths: int):
    """Conversion is exact within double precision: to the nanosecond for present Kineto stamps."""
    us = float(f"{whole}.{thousandths:03d}")
    found = int(nanoseconds(np.array([us]))[0])
    assert abs(found - (whole * 1000 + thousandths)) <= max(1, whole // 4_000_000_000_000)


def test_many_lost_collectives_are_restored_in_little_time(tmp_path: Path):
    """Each lost part finds its launch without looking at all other collectives."""
    num_steps, num_layers = 50, 100
    files = Job(num_ranks=2, num_steps=num_steps, num_layers=num_layers).files()
    events = files[1]["traceEvents"]
    kernels = [event for event in events if is_collective_kernel(event)]
    lost = {id(event) for event in kernels[1::2]}
    files[1]["traceEvents"] = [event for event in events if id(event) not in lost]
    looked_at = 0

    class Counted(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked_at
            for item in super().__iter__():
                looked_at += 1
                yield item

    init = missing_parts._Launches.__init__

    def counting(self: Any, own: Any, given: Any) -> None:
        init(self, own, given)
        self._launched = Counted(self._launched)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(missing_parts._Launches, "__init__", counting)
        trace = import_traces([write_set(files, tmp_path / "set")])
    assert trace.ledger["restored-communication"].count == len(lost)
    assert looked_at <= 4 * num_steps * num_layers
