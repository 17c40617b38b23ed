"""The kernel's scan and msgspec read the same columns; the scan refuses what it does not know."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.errors import InputError, LimitError
from augury.core.string_table import StringColumn
from augury.ingest import ancestors
from augury.ingest.formats import kineto_events
from augury.ingest.formats.gzip_reader import unpacked_chunks
from augury.ingest.formats.kineto_events import EventColumns
from augury.ingest.run_files import ReadBudget
from tests.campaigns import campaign

TRACES = os.environ.get("AUGURY_TRACES")
native = pytest.importorskip("augury._native", reason="the kernel is not built")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "trace.json"


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, StringColumn):
        return list(one) == list(other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, msgspec.Struct):  # the whole file is a head too
        return all(getattr(one, f) == getattr(other, f) for f in one.__struct_fields__)
    return one == other


def difference(scanned: EventColumns, decoded: EventColumns) -> list[str]:
    used = {k: v for k, v in decoded.thread_names.items() if k in set(decoded.addresses)}
    found = [
        name
        for name in EventColumns.__dataclass_fields__
        if name != "thread_names" and not is_equal(getattr(scanned, name), getattr(decoded, name))
    ]
    return found + ["thread_names"] * (scanned.thread_names != used)


def check(path: Path, data: bytes) -> bool:
    """Reads the file in both ways; returns whether the scan understood it."""
    path.write_bytes(data)
    try:
        scanned = kineto_events._scanned(path, None)
    except msgspec.DecodeError:
        scanned = None
    if scanned is None:
        with contextlib.suppress(InputError):
            kineto_events.read_events(path)
        return False
    assert difference(scanned, kineto_events._decoded(path, None)) == []
    return True


EVENT: dict[str, Any] = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "nccl:all_reduce",
    "pid": 7,
    "tid": "stream 7",
    "ts": 1669783687464181.25,
    "dur": 12,
    "args": {
        "External id": 3,
        "Sequence number": 5,
        "Fwd thread id": 1,
        "correlation": 12,
        "bytes": 1024,
        "dtype": "Float",
        "In msg nelems": 16,
        "Input Dims": [[2, 8]],
        "Input type": ["float"],
        "Process Group Ranks": "[0, 1]",
        "stream": 7,
    },
}
MEMORY: dict[str, Any] = {
    "ph": "i",
    "s": "t",
    "cat": "cpu_instant_event",
    "name": "[memory]",
    "pid": 7,
    "tid": 8,
    "ts": 1669783687464183.5,
    "args": {
        "Device Type": 1,
        "Device Id": 0,
        "Addr": 139926520725504,
        "Bytes": -512,
        "Total Allocated": 5435638784,
        "Total Reserved": 12782141440,
    },
}
THREAD = {"ph": "M", "name": "thread_name", "pid": 7, "tid": "stream 7", "args": {"name": "s"}}
FILE: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "a device"}, {}, [], [1, -2.5e3, True, None]],
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "traceEvents": [
        EVENT,
        THREAD,
        EVENT | {"cat": "python_function"},
        EVENT | {"cat": None},
        {},
        MEMORY,
    ],
    "baseTimeNanoseconds": 1711964646000000000,
    "host_name": "a \u00e4 host",
}


def test_a_usual_file_is_scanned(scratch: Path):
    assert check(scratch, json.dumps(FILE, indent=2).encode())
    assert check(scratch, json.dumps(FILE, ensure_ascii=False).encode())
    found = kineto_events._scanned(scratch, None)
    assert found is not None
    assert found.name.strings == ["nccl:all_reduce"]
    assert found.args[0].dtype == "Float"
    assert found.memory.change_bytes.tolist() == [-512]
    assert found.addresses[found.memory.thread[0]] == (7, 8)
    assert found.thread_names == {(7, "stream 7"): "s"}
    assert found.head.host_name == "a \u00e4 host"


@pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces here")
def test_real_files_are_scanned():
    assert TRACES is not None
    paths = sorted(Path(TRACES).glob("*/rank*.json.gz"))
    assert paths
    for path in paths:
        if path.stat().st_size < 2_000_000:
            scanned = kineto_events._scanned(path, None)
            assert scanned is not None, path
            assert difference(scanned, kineto_events._decoded(path, None)) == []


ODD = [
    *[None, True, False, -1, 0, -0.0, 2**31, 2**63, 10**17, 10**18, 10**40, 1e300, 0.1, 1e-7],
    *["x", "", "12", "0012", "9" * 18, "\u00e4\u20ac\U0001f600", 'a"b\\c\n', "Nccl", "\ud83d"],
    *[[], {}, [[1]], {"name": "thread_name"}, {"name": 3}, {"bytes": "77"}, {"bytes": -1.5}],
]


def spoil(value: Any, dice: random.Random) -> Any:
    """Replaces, adds or removes one random value in the document."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        if dice.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: spoil(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        return [*value[:at], spoil(value[at], dice), *value[at + 1 :]]
    return dice.choice(ODD)


@campaign(2000)
@given(seed=st.integers(0, 10**9), is_plain=st.booleans())
def test_odd_values(scratch: Path, seed: int, is_plain: bool):
    dice = random.Random(seed)
    content: Any = FILE
    for _ in range(dice.randint(1, 3)):
        content = spoil(content, dice)
    text = json.dumps(content, ensure_ascii=is_plain, indent=dice.choice([None, 1]))
    check(scratch, text.encode("utf-8", "surrogatepass"))


@campaign(2000)
@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 3000),
)
def test_bytes_changed_at_random(scratch: Path, edits: list[tuple[int, int]], cut: int):
    data = bytearray(json.dumps(FILE, ensure_ascii=False).encode())
    for place, value in edits:
        data[place % len(data)] = value
    check(scratch, bytes(data[:cut] if cut < 200 else data))


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [{"ph": "X", "ts": 01}]}',
        '{"traceEvents": [{"ph": "X", "ts": 1.}]}',
        '{"traceEvents": [{"ph": "X", "ts": .5}]}',
        '{"traceEvents": [{"ph": "X", "ts": 1e400}]}',
        '{"traceEvents": [{"ph": "X", "ts": NaN}]}',
        '{"traceEvents": [{"ph": "X", "pid": 1.0}]}',
        '{"traceEvents": [{"ph": "X", "args": {}, "args": {}}]}',
        '{"traceEvents": [{"ph": "X", "name": "\\ud800"}]}',
        '{"traceEvents": [{"ph": "X", "name": "\\x"}]}',
        '{"traceEvents": [{"ph": "X", "\\u0070h": "M"}]}',
        '{"traceEvents": [{"ph": "X"},]}',
        '{"traceEvents": []} x',
        '{"traceEvents": [], "traceEvents": []}',
        '{"traceEvents": []',
        '{"x": ' + "[" * 500 + "]" * 500 + ', "traceEvents": []}',
        "{}",
        "[]",
        "",
    ],
)
def test_the_scan_refuses(scratch: Path, text: str):
    assert not check(scratch, text.encode())


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    indent=st.sampled_from([None, 1]),
)
def test_pieces_of_any_size_give_the_same(sizes: list[int], indent: int | None):
    data = json.dumps(FILE, indent=indent, ensure_ascii=False).encode()

    def scanned(pieces: list[int]) -> dict[str, Any]:
        scan = native.KinetoScan([], ("python_function", "nn.Module: "), ["nccl"], 1)
        at = 0
        while at < len(data):
            size = pieces.pop(0) if pieces else len(data)
            assert scan.feed(data[at : at + size])
            at += size
        assert scan.finish()
        return scan.take()

    whole, pieces = scanned([]), scanned(list(sizes))
    assert whole.keys() == pieces.keys()
    assert all(is_equal(whole[key], pieces[key]) for key in whole)


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{!r}", "{:.3f}", "{:e}"])
)
def test_times_are_the_nearest_floats(scratch: Path, value: float, form: str):
    text = form.format(value)
    assert check(scratch, b'{"traceEvents": [{"ph": "X", "ts": %s}]}' % text.encode())
    found = kineto_events._scanned(scratch, None)
    assert found is not None
    assert found.start_us.tolist() == [float(text)]


def test_a_file_counts_once_against_the_budget(scratch: Path):
    for text in ('{"traceEvents": []}', '{"traceEvents": [{"ph": "X", "name": "\\ud83d\\ude00"}]}'):
        is_scanned = check(scratch, text.encode())
        assert is_scanned == ("ud83d" not in text)
        budget = ReadBudget(scratch, 1000)
        kineto_events.read_events(scratch, budget)
        assert budget.left_bytes == 1000 - len(text)


def test_too_many_events_are_refused(scratch: Path, monkeypatch: pytest.MonkeyPatch):
    scratch.write_text(json.dumps({"traceEvents": [{}] * 5}))
    monkeypatch.setattr(kineto_events, "MAX_EVENTS", 4)
    with pytest.raises(LimitError, match="5 events"):
        kineto_events.read_events(scratch)


@campaign(100)
@given(seed=st.integers(0, 10**9), size=st.integers(0, 9_000_000))
def test_unpacking_in_pieces_loses_nothing(scratch: Path, seed: int, size: int):
    dice = random.Random(seed)
    part = dice.randbytes(dice.choice([1, 100, 50_000]))
    data = (part * (size // len(part) + 1))[:size]
    path = scratch.with_suffix(".gz")
    path.write_bytes(gzip.compress(data[: size // 2], 1) + gzip.compress(data[size // 2 :], 1))
    assert b"".join(unpacked_chunks(path, max_ratio=10**6)) == data


@campaign(300)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 20)), max_size=40
    ),
    marks=st.lists(st.booleans(), min_size=40, max_size=40),
    stated=st.lists(st.sampled_from([0, 1, 2, 3, 4, 255]), min_size=40, max_size=40),
)
def test_values_of_enclosing_events(
    monkeypatch_module: pytest.MonkeyPatch,
    rows: list[tuple[int, int, int]],
    marks: list[bool],
    stated: list[int],
):
    rows.sort(key=lambda row: (row[0], row[1], -row[2]))
    stream = np.array([row[0] for row in rows], dtype=np.int32)
    start_ns = np.array([row[1] for row in rows], dtype=np.int64)
    dur_ns = np.array([row[2] for row in rows], dtype=np.int64)
    inherits = np.array(marks[: len(rows)], dtype=bool)
    phase = np.array(stated[: len(rows)], dtype=np.uint8)
    found = []
    for kernel in (native, None):
        monkeypatch_module.setattr(ancestors, "_kernel", lambda kernel=kernel: kernel)
        parent = ancestors.enclosing(stream, start_ns, dur_ns)
        value = np.arange(len(rows), dtype=np.int32)
        found.append(
            (
                parent.tolist(),
                ancestors.inherit(parent, inherits, value).tolist(),
                ancestors.inherit_phases(parent, phase, (3, 4)).tolist(),
            )
        )
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def lines(events: list[dict[str, Any]]) -> str:
    return json.dumps({"traceEvents": events})


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "-nan", "NaN", "Infinity", "-Infinity"])
def test_values_that_are_no_numbers_are_left_out(scratch: Path, value: str):
    """Kineto wrote the bandwidth of copies that took no time as inf."""
    copy = EVENT | {"cat": "gpu_memcpy", "args": {"correlation": 5, "bandwidth": "<", "bytes": "<"}}
    scratch.write_text(lines([EVENT, copy]).replace('"<"', value))
    found = kineto_events.read_events(scratch)
    assert found.correlation.tolist() == [12, 5]
    assert found.size_bytes.tolist() == [1024, 0]
    assert found.is_repaired


def test_names_in_other_encodings_are_read(scratch: Path):
    text = lines([EVENT, EVENT | {"name": "<"}]).encode()
    scratch.write_bytes(text.replace(b'"<"', b'"a \xb9\xff name"'))
    found = kineto_events.read_events(scratch)
    assert list(found.name) == ["nccl:all_reduce", "a ?? name"]
    assert found.is_repaired


def test_a_byte_order_mark_is_skipped(scratch: Path):
    scratch.write_text(lines([EVENT]), encoding="utf-8-sig")
    assert list(kineto_events.read_events(scratch).name) == ["nccl:all_reduce"]


def test_what_cannot_be_repaired_is_refused(scratch: Path):
    budget = ReadBudget(scratch, 1 << 20)
    for text in (lines([EVENT]).replace("12", "inf", 1)[:-9], lines([EVENT | {"ts": None}])):
        scratch.write_text(text)
        with pytest.raises(InputError, match="not a trace of torch's profiler"):
            kineto_events.read_events(scratch, budget)


def test_categories_of_the_first_kineto_are_those_of_today(scratch: Path):
    old = ["Operator", "Runtime", "Kernel", "Memcpy", "Memset", "user_annotation", "kernel"]
    scratch.write_text(lines([EVENT | {"cat": each} for each in old]))
    assert list(kineto_events.read_events(scratch).category) == [
        *("cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset"),
        *("user_annotation", "kernel"),
    ]
