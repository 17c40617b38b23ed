"""Loading a saved graph gives an equal graph; a damaged file gives an error with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.errors import AuguryError, FileFormatError, InputError, LimitError, UsageError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.graph.graph_file import MAGIC, SUFFIX, load_graph, save_graph
from augury.core.ledger import Severity
from tests.campaigns import campaign
from tests.engines.strategies import graphs, symmetric_graphs


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs") / f"scratch{SUFFIX}"


def small_graph() -> Graph:
    """Something in every table."""
    b = GraphBuilder(meta={"model": "résumé"})
    b.rank(host="alpha")
    b.rank(host="βeta")
    streams = [b.resource("stream", rank=rank) for rank in range(2)]
    link = b.shared_resource("link", capacity=1.5)
    b.interfere(victim=streams[0], aggressor=link, rate=0.5)
    gang = b.gang()
    for rank in range(2):
        forward = b.op("前向", rank=rank, resource=streams[rank], work_ns=5, layer="conv")
        b.op(
            "reduce",
            kind=OpKind.ALL_REDUCE,
            rank=rank,
            resource=link,
            work_ns=7,
            gang=gang,
            after=[forward],
        )
    b.carry(1, 0)
    b.buffer(100, rank=0, taken_by=0, given_by=1, layer="conv")
    b.gradient("conv.weight", rank=0, size_bytes=64, made_by=0, carried_by=1, used_by=1)
    b.measured_step(rank=0, step=0, dur_ns=20, explained_ns=15)
    b.ledger.note("gap", "nothing recorded", severity=Severity.INFO, example="rank 0 🕳")
    return b.build()


def test_a_small_graph_comes_back_equal(scratch: Path):
    graph = small_graph()
    save_graph(graph, scratch, force=True)
    loaded = load_graph(scratch)
    assert loaded == graph
    assert loaded.meta == graph.meta
    assert loaded.ledger["gap"].severity is Severity.INFO
    assert loaded.op_name(0) == "前向"


def test_a_path_may_be_text(tmp_path: Path):
    path = str(tmp_path / "graph.augury")
    save_graph(small_graph(), path)
    assert load_graph(path) == small_graph()


def test_saving_twice_gives_the_same_bytes(tmp_path: Path):
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        save_graph(small_graph(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_was_loaded_cannot_be_written(scratch: Path):
    save_graph(small_graph(), scratch, force=True)
    with pytest.raises(ValueError, match="read-only"):
        load_graph(scratch).ops.work_ns[0] = 1


@campaign(150)
@given(
    graph=st.one_of(
        graphs(gangs=True, may_deadlock=True, servers=True, extras=True),
        graphs(gangs=True, shared=True, interference=True, extras=True),
        symmetric_graphs(extras=True),
    )
)
def test_random_graphs_come_back_equal(scratch: Path, graph: Graph):
    save_graph(graph, scratch, force=True)
    assert load_graph(scratch) == graph


_texts = st.text(max_size=12)


@campaign(150)
@given(
    names=st.lists(st.tuples(_texts, st.none() | _texts), min_size=1, max_size=6),
    host=_texts,
    meta=st.dictionaries(_texts, _texts, max_size=3),
    anomalies=st.lists(st.tuples(_texts, _texts, st.integers(1, 2**62)), max_size=3),
)
def test_any_text_comes_back(
    scratch: Path,
    names: list[tuple[str, str | None]],
    host: str,
    meta: dict[str, str],
    anomalies: list[tuple[str, str, int]],
):
    b = GraphBuilder(meta=meta)
    b.rank(host=host)
    b.resource(host + "!", rank=0)
    for name, layer in names:
        b.op(name, rank=0, work_ns=1, layer=layer)
    for name, meaning, count in anomalies:
        b.ledger.note(name, meaning, count=count)
    graph = b.build()
    save_graph(graph, scratch, force=True)
    loaded = load_graph(scratch)
    assert loaded == graph
    assert [loaded.op_name(op) for op in range(len(names))] == [name for name, _ in names]


def test_text_that_is_not_unicode_is_replaced(scratch: Path):
    b = GraphBuilder(meta={"path": "caf\udce9"})
    b.rank()
    b.op("caf\udce9", rank=0, work_ns=1)
    b.ledger.note("odd", "a name", example="\ud800")
    save_graph(b.build(), scratch, force=True)
    loaded = load_graph(scratch)
    assert loaded.op_name(0) == "caf?"
    assert loaded.meta == {"path": "caf?"}
    assert loaded.ledger["odd"].example == "?"


# -- refusals ------------------------------------------------------------------------------


def test_nothing_is_overwritten_unless_told_to(tmp_path: Path):
    path = tmp_path / "graph.augury"
    path.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists"):
        save_graph(small_graph(), path)
    assert path.read_bytes() == b"precious"
    save_graph(small_graph(), path, force=True)
    assert load_graph(path) == small_graph()


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"):
        load_graph(tmp_path / "none.augury")


def test_a_directory(tmp_path: Path):
    with pytest.raises(InputError, match="Is a directory"):
        load_graph(tmp_path)


def test_an_empty_file(scratch: Path):
    scratch.write_bytes(b"")
    with pytest.raises(FileFormatError, match="is empty"):
        load_graph(scratch)


@pytest.mark.parametrize("data", [b"{}", b"PK\x03\x04" + bytes(100), MAGIC[1:] + bytes(50), b"\n"])
def test_a_file_of_another_kind(scratch: Path, data: bytes):
    scratch.write_bytes(data)
    with pytest.raises(FileFormatError, match="is not an Augury graph") as caught:
        load_graph(scratch)
    assert SUFFIX in caught.value.remedy


def test_a_file_of_another_version(scratch: Path):
    save_graph(small_graph(), scratch, force=True)
    data = bytearray(scratch.read_bytes())
    data[len(MAGIC)] = 9
    scratch.write_bytes(data)
    with pytest.raises(FileFormatError, match="format version 9; this Augury reads version 2"):
        load_graph(scratch)


def test_an_error_names_the_file(scratch: Path):
    scratch.write_bytes(b"{}")
    with pytest.raises(FileFormatError) as caught:
        load_graph(scratch)
    assert str(scratch) in caught.value.cause


def run_python(*arguments: str | Path) -> str:
    """The output of another process that finds the same modules."""
    paths = os.pathsep.join(filter(None, [*sys.path, str(Path(__file__).parents[2])]))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": paths},
    ).stdout


_FILL_THE_DISK = """
import resource, sys
from augury.core.errors import AuguryError
from augury.core.graph.graph_file import save_graph
from tests.core.test_graph_file import small_graph

resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    save_graph(small_graph(), sys.argv[1], force=True)
except AuguryError as error:
    print(error.cause)
"""


def test_a_disk_that_fills_up_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "graph.augury"
    path.write_bytes(b"precious")
    assert run_python("-c", _FILL_THE_DISK, path) == f"cannot write {path}: File too large\n"
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_while_saving_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_graph(small_graph(), tmp_path / "graph.augury")
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_could_not_be_read_again_is_not_written(tmp_path: Path):
    graph = small_graph().evolve(meta={"log": "x" * (17 << 20)})
    with pytest.raises(LimitError, match=r"header of 17\.8 MB"):
        save_graph(graph, tmp_path / "graph.augury")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told():
    with pytest.raises(AuguryError, match="cannot write"):
        save_graph(small_graph(), "/proc/self/graph.augury")
