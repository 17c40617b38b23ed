"""A saved Trace is read back equal; damaged and forged files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import MemoryKind, OpKind, Phase, StepState, StreamKind
from augury.core.errors import InputError, LimitError
from augury.core.ledger import Ledger
from augury.core.string_table import StringTable
from augury.core.trace.trace import (
    Calibration,
    Clock,
    Events,
    GradientEvents,
    MemoryUse,
    RankFacts,
    Steps,
    Streams,
    Trace,
)
from augury.core.trace.trace_file import (
    TableParts,
    read_trace,
    write_trace,
    write_trace_in_parts,
)
from augury.core.trace.trace_spec import problems
from tests.campaigns import campaign


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    world = draw(st.integers(1, 3))
    texts = draw(st.lists(st.text(max_size=5), max_size=4))
    strings = StringTable.of(texts)
    name = st.integers(-1, len(strings) - 1)
    rank = st.integers(0, world - 1)
    groups = draw(st.lists(st.just(list(range(world))), max_size=2))
    group = st.integers(-1, len(groups) - 1)
    time = st.integers(-(10**18), 10**18)
    size = st.integers(0, 1 << 60)
    streams = draw(st.lists(st.tuples(st.sampled_from(StreamKind), rank, name), max_size=4))
    events = []
    if streams:
        number = st.integers(0, len(streams) - 1)
        for _ in range(draw(st.integers(0, 6))):
            stream = draw(number)
            events.append(
                (
                    draw(st.sampled_from(OpKind)),
                    streams[stream][1],
                    stream,
                    *draw(st.tuples(name, time, st.integers(0, 10**12), time)),
                    draw(st.integers(-1, 9)),
                    draw(st.sampled_from(Phase)),
                    *draw(st.tuples(name, size, group, st.integers(-1, 9))),
                )
            )
    events.sort(key=lambda e: (e[1], e[2], e[4], -e[5]))
    num = len(events)
    cause = draw(st.lists(st.integers(-1, num - 1), min_size=num, max_size=num))
    parent = [draw(st.integers(-1, i - 1)) for i in range(num)]
    ledger = Ledger()
    ledger.note("odd", "something odd", count=draw(st.integers(0, 3)), example=draw(st.text()))
    steps = sorted({(draw(rank), draw(st.integers(0, 5))) for _ in range(draw(st.integers(0, 4)))})
    return Trace(
        events=table(Events, [(*e, c, p) for e, c, p in zip(events, cause, parent, strict=True)]),
        streams=table(Streams, streams),
        steps=table(
            Steps,
            [(*key, 5, draw(st.integers(5, 99)), StepState.TIMED, -1, 3, 4) for key in steps],
        ),
        strings=strings,
        ranks=[
            RankFacts(rank=r, host=draw(st.text(max_size=3)), clock=Clock(drift_ppm=0.25))
            for r in range(world)
        ],
        world_size=world,
        groups=groups,
        gradients=table(GradientEvents, [(0, i, -1, draw(size), i, -1) for i in range(2)]),
        memory=table(MemoryUse, [(0, MemoryKind.GRADIENT, -1, draw(size))]),
        calibration=[
            Calibration(
                collective="all_reduce",
                group=0,
                size_bytes=4,
                concurrent=1,
                beside_compute=False,
                durations_ns=[1, 2],
            )
            for _ in groups[:1]
        ],
        ledger=ledger,
    )


def table(kind: type[Any], rows: list[tuple[int, ...]]) -> Any:
    names = [name for name, _ in kind.schema()]
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(names)).T
    return kind(**dict(zip(names, columns, strict=True)))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@settings(max_examples=60)
@given(trace=traces())
def test_what_was_written_comes_back(scratch: Path, trace: Trace):
    assert list(problems(trace)) == []
    write_trace(trace, scratch)
    assert read_trace(scratch) == trace


def sample() -> Trace:
    """Two ranks, one event on each."""
    return Trace(
        events=table(
            Events,
            [
                (OpKind.ALL_REDUCE, rank, rank, 0, 5, 7, 4, 1, Phase.NONE, -1, 8, 0, 0, -1, -1)
                for rank in (0, 1)
            ],
        ),
        streams=table(Streams, [(StreamKind.COMMUNICATION, rank, 0) for rank in (0, 1)]),
        steps=table(Steps, [(rank, 1, 0, 9, StepState.TIMED, -1, -1, -1) for rank in (0, 1)]),
        strings=StringTable.of(["reduce"]),
        ranks=[RankFacts(rank=rank, host="h") for rank in (0, 1)],
        world_size=2,
        groups=[[0, 1]],
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trace(sample(), tmp_path)
    return tmp_path


def test_every_truncation_is_refused(folder: Path):
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        for size in range(0, len(good), 7):
            path.write_bytes(good[:size])
            with pytest.raises(InputError):
                read_trace(folder)
        path.write_bytes(good)
    assert read_trace(folder) == sample()


@campaign(150)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255), which=st.integers(0, 5))
def test_random_damage(scratch: Path, place: int, value: int, which: int):
    write_trace(sample(), scratch)
    paths = [path for path in sorted(scratch.iterdir()) if path.stat().st_size]
    path = paths[which % len(paths)]
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(bytes(data))
    try:
        trace = read_trace(scratch)
    except InputError:
        return
    assert list(problems(trace)) == []


def forge(folder: Path, events: dict[str, Any], **fields: Any) -> None:
    """Events with other content and the right checksums."""
    other = folder / "other"
    other.mkdir()
    columns = dict(sample().events.columns()) | events
    write_trace(sample().evolve(events=Events(**columns)), other)
    (folder / "events.columns").write_bytes((other / "events.columns").read_bytes())
    head = json.loads((folder / "run.json").read_text())
    head["tables"]["events"] = json.loads((other / "run.json").read_text())["tables"]["events"]
    head["tables"]["events"] |= fields
    (folder / "run.json").write_text(json.dumps(head))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("rank", [9, 9], "rank"),
        ("name", [9, 9], "name"),
        ("stream", [9, 9], "stream"),
        ("group", [9, 9], "group"),
        ("parent", [9, 9], "parent"),
        ("parent", [1, 1], "encloses"),
        ("cause", [-2, -2], "cause"),
        ("dur_ns", [-2, -2], "dur_ns"),
        ("start_ns", [1 << 62, 1 << 62], "start"),
        ("kind", [200, 200], "means nothing"),
        ("rank", [1, 0], "order"),
        ("stream", [0, 0], "stream"),
    ],
)
def test_lies_in_a_table(folder: Path, column: str, values: list[int], message: str):
    forge(folder, {column: np.array(values)})
    with pytest.raises(InputError, match=message):
        read_trace(folder)


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_other_rows_than_declared(folder: Path, num_rows: int):
    forge(folder, {}, num_rows=num_rows)
    with pytest.raises(InputError, match="rows"):
        read_trace(folder)


def test_more_rows_than_the_cap(folder: Path):
    forge(folder, {}, num_rows=1 << 40)
    with pytest.raises(LimitError, match="cap"):
        read_trace(folder)


@pytest.mark.parametrize("crc32", [{}, {"rank": 5}, 7, {"rank": "x"}])
def test_checksums_that_are_missing_or_wrong(folder: Path, crc32: Any):
    forge(folder, {}, crc32=crc32)
    with pytest.raises(InputError):
        read_trace(folder)


def test_other_bytes_of_the_same_size(folder: Path):
    path = folder / "events.columns"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(InputError, match=r"run\.json was written with"):
        read_trace(folder)


def test_a_table_in_parts_is_the_same_file(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    whole = sample()
    columns = dict(whole.events.columns())
    parts = [Events(**{n: v[at : at + 1] for n, v in columns.items()}) for at in range(2)]
    other = tmp_path_factory.mktemp("parts")
    write_trace_in_parts({"events": TableParts(iter(parts), 2)}, lambda: whole, other)
    for path in folder.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


def test_tables_do_not_change_under_a_reader(folder: Path):
    """The file is mapped; writing the run again replaces the file and not its content."""
    trace = read_trace(folder)
    write_trace(sample().evolve(events=Events.empty()), folder)
    assert trace == sample()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 9}, "version 9"),
        ({"schema_version": 1}, "version 1"),
        ({"world_size": 1}, "rank"),
        ({"world_size": 0}, "0 ranks"),
        ({"groups": [[0, 0]]}, "twice"),
        ({"groups": []}, "group"),
        ({"tables": {}}, "tables"),
        ({"ranks": []}, None),
        ({"ranks": [{"rank": 1, "host": ""}, {"rank": 0, "host": ""}]}, "order"),
        ({"strings": 3}, "not understood"),
        ({"more": 1}, "not understood"),
    ],
)
def test_lies_in_the_head(folder: Path, change: dict[str, Any], message: str | None):
    head = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(head | change))
    if message is None:
        read_trace(folder)
        return
    with pytest.raises(InputError, match=message):
        read_trace(folder)


def test_tables_of_another_writing_do_not_fit(folder: Path, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write_trace(sample().evolve(events=Events.empty()), other)
    (folder / "events.columns").write_bytes((other / "events.columns").read_bytes())
    with pytest.raises(InputError, match="rows"):
        read_trace(folder)
