"""A graph file is hostile until proven otherwise: damage of every kind gives an InputError, never
another exception, never a wrong graph, and never more memory than the cap."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.errors import FileFormatError, GraphError, InputError, LimitError
from augury.core.graph.graph_file import MAGIC, VERSION, load_graph, save_graph
from tests.campaigns import campaign

from .forged_graph import Forgery
from .test_graph_file import run_python, small_graph

GRAPH = small_graph()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "scratch.augury"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "good.augury"
    save_graph(GRAPH, path)
    return path.read_bytes()


def _load(scratch: Path, data: bytes) -> None:
    """Passes if the bytes give the same graph or are refused."""
    scratch.write_bytes(data)
    try:
        graph = load_graph(scratch)
    except InputError:
        return
    assert graph == GRAPH


# -- damage --------------------------------------------------------------------------------


def test_every_truncation_is_refused(scratch: Path, good: bytes):
    for size in range(len(good)):
        scratch.write_bytes(good[:size])
        with pytest.raises(FileFormatError, match=r"truncated|is empty"):
            load_graph(scratch)


def test_every_byte_flipped(scratch: Path, good: bytes):
    for position in range(len(good)):
        data = bytearray(good)
        data[position] ^= 1 << position % 8
        _load(scratch, bytes(data))


@campaign(300)
@given(
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 40),
    junk=st.binary(max_size=20),
)
def test_random_damage(
    scratch: Path, good: bytes, edits: list[tuple[int, int]], cut: int, junk: bytes
):
    data = bytearray(good[: len(good) - cut] + junk)
    for position, value in edits:
        data[position % len(data)] = value
    _load(scratch, bytes(data))


def test_bytes_after_the_end_are_refused(scratch: Path, good: bytes):
    scratch.write_bytes(good + b"more")
    with pytest.raises(FileFormatError, match="4 bytes follow its end"):
        load_graph(scratch)


# -- a well-formed file that lies ----------------------------------------------------------


@pytest.fixture
def forgery(good: bytes) -> Forgery:
    return Forgery(good)


def test_putting_it_together_again_is_not_noticed(scratch: Path, forgery: Forgery):
    forgery.write(scratch)
    assert load_graph(scratch) == GRAPH


@pytest.mark.parametrize(
    "raw_header",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b"null",
        b'{"kind": "graph", "sections": [], "meta": {}, "ledger": [], "more": 1}',
        b'{"kind": "graph", "sections": [{}], "meta": {}, "ledger": []}',
        b'{"kind": "graph", "sections": [], "meta": {"a": 1}, "ledger": []}',
        b'{"kind": "graph", "sections": [], "meta": {"a": "\xff"}, "ledger": []}',
        b'{"kind": "graph", "sections": [], "meta": {"\xff": "a"}, "ledger": []}',
        b'{"kind": "\xff", "sections": [], "meta": {}, "ledger": []}',
        b'{"kind": "graph", "sections": [], "meta": {}, "ledger": [{"name": "a"}]}',
        b'{"kind": "graph", "sections": ' + b"[" * 100_000,
        b'{"sections": ' + b'{"a":' * 100_000,
    ],
)
def test_a_header_that_is_not_understood(scratch: Path, forgery: Forgery, raw_header: bytes):
    forgery.write(scratch, raw_header)
    with pytest.raises(FileFormatError, match="header is not understood"):
        load_graph(scratch)


def test_a_file_of_another_noun(scratch: Path, forgery: Forgery):
    forgery.header["kind"] = "plan"
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match="it holds 'plan', not a graph"):
        load_graph(scratch)


def test_a_header_that_claims_to_be_huge(scratch: Path):
    scratch.write_bytes(MAGIC + struct.pack("<II", VERSION, 2**32 - 1) + bytes(100))
    with pytest.raises(FileFormatError, match="its header claims"):
        load_graph(scratch)


def _drop(forgery: Forgery) -> None:
    forgery.header["sections"].pop()
    forgery.columns.pop()


def _repeat(forgery: Forgery) -> None:
    forgery.header["sections"].append(forgery.header["sections"][-1])
    forgery.columns.append(forgery.columns[-1])


def _rename(forgery: Forgery) -> None:
    forgery.section("ops.rank")["name"] = "ops.sink"


@pytest.mark.parametrize(
    ("change", "words"),
    [(_drop, "strings.text"), (_repeat, "a column twice"), (_rename, "ops.rank, ops.sink")],
)
def test_columns_that_are_not_a_graphs(
    scratch: Path, forgery: Forgery, change: Callable[[Forgery], None], words: str
):
    change(forgery)
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match=f"columns are not a graph's .*{words}"):
        load_graph(scratch)


@pytest.mark.parametrize("field", ["count", "stored_bytes"])
@pytest.mark.parametrize("size", [-1, 2**62, 2**64, 10**40, 10**400, 10**4000], ids=hex)
def test_a_size_that_is_none(scratch: Path, forgery: Forgery, field: str, size: int):
    forgery.section("ops.rank")[field] = size
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match="header is not understood") as caught:
        load_graph(scratch)
    assert len(caught.value.cause) < 300


@pytest.mark.parametrize("count", [10**9, 2**59])
def test_a_column_that_declares_more_than_the_cap(scratch: Path, forgery: Forgery, count: int):
    forgery.section("ops.work_ns")["count"] = count
    forgery.write(scratch)
    with pytest.raises(LimitError, match=r"more than the cap of 2\.15 GB") as caught:
        load_graph(scratch)
    assert "--max-bytes" in caught.value.remedy


@pytest.mark.parametrize("size", [10**9, 2**59])
def test_a_column_that_declares_more_than_the_file_has(scratch: Path, forgery: Forgery, size: int):
    forgery.section("ops.work_ns")["stored_bytes"] = size
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match="truncated"):
        load_graph(scratch)


def test_the_cap_is_the_callers(scratch: Path, forgery: Forgery):
    forgery.write(scratch)
    with pytest.raises(LimitError, match="more than the cap of 10 B"):
        load_graph(scratch, max_bytes=10)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("size", [0, 4, 36, 4000])
def test_a_column_of_another_size_than_it_declares(
    scratch: Path, forgery: Forgery, packed: bool, size: int
):
    raw = bytes(size)
    data = zlib.compress(raw) if packed else raw
    forgery.put("ops.work_ns", data, packed=packed, crc32=zlib.crc32(raw))
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match=r"ops\.work_ns does not have the size it declares"):
        load_graph(scratch)


def test_a_column_that_is_not_packed_though_it_says_so(scratch: Path, forgery: Forgery):
    forgery.put("ops.work_ns", b"garbage", packed=True)
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match=r"column ops\.work_ns does not unpack"):
        load_graph(scratch)


def test_a_column_with_another_checksum(scratch: Path, forgery: Forgery):
    forgery.section("ops.work_ns")["crc32"] ^= 1
    forgery.write(scratch)
    with pytest.raises(FileFormatError, match=r"checksum of column ops\.work_ns"):
        load_graph(scratch)


def test_a_graph_that_breaks_its_specification(scratch: Path, forgery: Forgery):
    raw = np.array([5, 7, -1, 7], dtype="<i8").tobytes()
    forgery.put("ops.work_ns", raw, packed=False, crc32=zlib.crc32(raw))
    forgery.write(scratch)
    with pytest.raises(GraphError, match="operation 2 takes -1 ns"):
        load_graph(scratch)


def test_columns_of_different_lengths(scratch: Path, forgery: Forgery):
    forgery.put("ops.work_ns", b"", packed=False, count=0, crc32=0)
    forgery.write(scratch)
    with pytest.raises(GraphError, match="differ in length"):
        load_graph(scratch)


def test_text_that_is_not_unicode_is_shown_with_replacements(scratch: Path, forgery: Forgery):
    size = forgery.section("strings.text")["count"]
    raw = b"\xff" * size
    forgery.put("strings.text", raw, packed=False, crc32=zlib.crc32(raw))
    forgery.write(scratch)
    assert set(load_graph(scratch).op_name(0)) == {"\ufffd"}


# -- bombs ---------------------------------------------------------------------------------

BOMB_BYTES = 10 << 30
MEMORY_CAP_BYTES = 64 << 20
"""Far above the memory of a refusal, far below that of unpacking."""

_MEASURE = """
import resource, sys
from pathlib import Path
from augury.core.errors import InputError
from augury.core.graph.graph_file import load_graph

def peak_bytes():
    # Not ru_maxrss: it starts at the peak of the parent process.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

try:
    load_graph(Path(__file__).parent / "none")  # what is imported on first use counts before
except InputError:
    pass
before = peak_bytes()
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # should it fail, then not at large
try:
    load_graph(sys.argv[1])
except InputError as error:
    print(type(error).__name__, peak_bytes() - before, error.cause, sep="\\n")
"""


def _zeros(size: int) -> Iterator[bytes]:
    """A zlib stream of zeros, piece by piece: after a full flush a block stands for itself, so
    one block serves again and again."""
    block_bytes = 1 << 26
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(block_bytes)) + packer.flush(zlib.Z_FULL_FLUSH)
    yield b"\x78\xda"
    for _ in range(size // block_bytes):
        yield block
    yield b"\x03\x00"
    # Adler-32 of n zeros: the sum stays 1, the sum of sums counts to n.
    yield struct.pack(">I", size % 65521 << 16 | 1)


def test_the_bomb_is_a_real_one():
    assert zlib.decompress(b"".join(_zeros(1 << 27))) == bytes(1 << 27)


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return b"".join(_zeros(BOMB_BYTES))


def _refusal(tmp_path: Path, path: Path) -> tuple[str, int, str]:
    """Loads the file in a fresh process. Returns its error and the growth of its memory."""
    script = tmp_path / "measure.py"
    script.write_text(_MEASURE)
    name, grown, cause = run_python(script, path).splitlines()
    return name, int(grown), cause


def test_ten_gigabytes_in_ten_megabytes_are_refused(tmp_path: Path, forgery: Forgery, bomb: bytes):
    assert 9e6 < len(bomb) < 12e6
    forgery.put("ops.work_ns", bomb, packed=True, count=BOMB_BYTES // 8)
    forgery.write(tmp_path / "bomb.augury")
    name, grown, cause = _refusal(tmp_path, tmp_path / "bomb.augury")
    assert name == "LimitError"
    assert "unpacks to 10.7 GB, more than the cap of 2.15 GB" in cause
    assert grown < MEMORY_CAP_BYTES


@pytest.mark.parametrize("count", [4, 1_500_000])
def test_a_column_that_unpacks_to_more_than_it_declares_stops_there(
    tmp_path: Path, forgery: Forgery, bomb: bytes, count: int
):
    # As many as there are operations; or enough that the packed bytes look plausible.
    forgery.put("ops.work_ns", bomb, packed=True, count=count)
    forgery.write(tmp_path / "bomb.augury")
    name, grown, cause = _refusal(tmp_path, tmp_path / "bomb.augury")
    assert name == "FileFormatError"
    assert "ops.work_ns does not have the size it declares" in cause
    assert grown < MEMORY_CAP_BYTES


def test_a_huge_file_that_holds_little_is_not_read(tmp_path: Path, forgery: Forgery):
    path = tmp_path / "sparse.augury"
    last = forgery.header["sections"][-1]
    last["stored_bytes"] = BOMB_BYTES
    last["packed"] = True
    forgery.write(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - len(forgery.columns[-1]) + BOMB_BYTES)
    name, grown, _ = _refusal(tmp_path, path)
    assert name == "FileFormatError"
    assert grown < MEMORY_CAP_BYTES
