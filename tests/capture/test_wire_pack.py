"""Packing of wire records: any content, also while they are being written."""

from __future__ import annotations

import gzip
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from augury.capture.launcher.run_summary import summarize_run
from augury.capture.wire.pack import drop_former, pack_left, pack_wire, read_header
from augury.core.ledger import Ledger
from tests.capture.wired import CONNECTION, EVENT, HEADER, PAIR, np, read_wire, wired

NAME = "rank-00001.wire-999999999-18.bin"
"""Process id that does not exist."""


def header(**changes: object) -> bytes:
    told = np.zeros(1, HEADER)
    values = {"magic": b"AUGWIRE1", "version": 1, "header_bytes": 4096, "host": own_host()}
    values |= {"connection_bytes": 128, "event_bytes": 64, "rank": 1, "pid": 999_999_999}
    for name, value in (values | changes).items():
        told[name] = value
    return told.tobytes().ljust(4096, b"\0")


def own_host() -> bytes:
    return socket.gethostname()[:63].encode()


def make(path: Path, numbers: list[int], *, num_events: int, **changes: object) -> Path:
    """Writes one connection of at most four; ``numbers`` are those of the event slots."""
    told = header(
        max_connections=4,
        num_connections=1,
        max_events=len(numbers),
        num_events=num_events,
        **changes,
    )
    connections, events = np.zeros(4, CONNECTION), np.zeros(len(numbers), EVENT)
    connections["sent"][0] = 4711
    events["number"] = numbers
    events["done"] = [10 * number for number in numbers]
    path.write_bytes(told + connections.tobytes() + events.tobytes())
    return path


def packed_numbers(path: Path) -> list[int]:
    packed = read_wire(pack_wire(path))
    assert packed.connections["sent"].tolist() == [4711]
    assert packed.header["max_events"] == len(packed.events)
    assert (packed.events["done"] == 10 * packed.events["number"]).all()
    return packed.events["number"].tolist()


def test_unused_rows_are_removed(tmp_path: Path):
    path = make(tmp_path / NAME, [1, 2, 3, 0, 0, 0], num_events=3)
    assert packed_numbers(path) == [1, 2, 3]
    with gzip.open(tmp_path / NAME.replace(".bin", ".wire.gz")) as file:
        assert len(file.read()) == 4096 + 128 + 3 * 64


def test_the_newest_events_are_in_the_order_of_their_numbers(tmp_path: Path):
    path = make(tmp_path / NAME, [9, 10, 11, 12, 5, 6, 7, 8], num_events=12)
    assert packed_numbers(path) == [5, 6, 7, 8, 9, 10, 11, 12]
    assert read_wire(pack_wire(path)).header["num_events"] == 12


def test_incomplete_rows_are_removed(tmp_path: Path):
    """Half-written rows, rows of earlier rounds, and invalid ones."""
    path = make(tmp_path / NAME, [9, 0, 3, 12, 5, 77, 7, 8], num_events=12)
    assert packed_numbers(path) == [5, 7, 8, 9, 12]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"\0" * 5000, "not a record of TCP traffic"),
        (header(version=2), "not a record of TCP traffic"),
        (header(max_events=1 << 40), "too large"),
        (header(max_connections=1 << 40), "too large"),
        (header(num_connections=1), "contradicts itself"),
        (header(num_events=1 << 60), "contradicts itself"),
    ],
)
def test_invalid_bytes_are_refused(tmp_path: Path, data: bytes, why: str):
    with pytest.raises(ValueError, match=why):
        read_header(data)
    (tmp_path / NAME).write_bytes(data)
    pack_left(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    ledger = Ledger(summarize_run(tmp_path, wire=True).ledger)
    assert why in ledger["unreadable-wire"].example


def test_a_truncated_file_is_left_alone(tmp_path: Path):
    path = make(tmp_path / NAME, [1, 2, 3], num_events=3)
    path.write_bytes(path.read_bytes()[:-1])
    pack_left(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_damaged_packed_file_is_reported(tmp_path: Path):
    packed = pack_wire(make(tmp_path / NAME, [1], num_events=1))
    (tmp_path / NAME).unlink()
    packed.write_bytes(packed.read_bytes()[:20] + bytes(30))
    ledger = Ledger(summarize_run(tmp_path, wire=True).ledger)
    assert "unreadable-wire" in ledger


def test_files_of_other_hosts_and_ranks_are_left_alone(tmp_path: Path):
    make(tmp_path / NAME, [1], num_events=1)
    make(tmp_path / "rank-00002.wire-999999999-18.bin", [1], num_events=1)
    make(tmp_path / "rank-00001.wire-999999999-19.bin", [1], num_events=1, host=b"elsewhere")
    pack_left(tmp_path, rank=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank-00001.wire-999999999-18.wire.gz",
        "rank-00001.wire-999999999-19.bin",
        "rank-00002.wire-999999999-18.bin",
    ]


def test_files_of_an_earlier_start_are_removed(tmp_path: Path):
    kept = [f"rank-00001.wire-{os.getpid()}-18.bin", "rank-00002.wire-999999999-18.bin"]
    for name in (NAME, NAME.replace(".bin", ".wire.gz"), "rank-00001.wire-notes", *kept):
        (tmp_path / name).touch()
    drop_former(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"rank-00001.wire-notes", *kept}


@pytest.mark.usefixtures("wire_recorder")
def test_a_running_process_keeps_its_file(tmp_path: Path):
    script = "near, far = pair()\nnear.send(bytes(9))\nprint('now', flush=True)\ninput()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", PAIR + script],
        env=wired(tmp_path, AUGURY_WIRE_EVENTS="1000"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        (path,) = tmp_path.glob("*.bin")
        pack_left(tmp_path)
        assert list(tmp_path.iterdir()) == [path]
        assert len(read_wire(pack_wire(path)).events) >= 1
    finally:
        process.communicate("\n", timeout=60)
    pack_left(tmp_path)
    (packed,) = tmp_path.iterdir()
    assert read_wire(packed).connections["sent"].max() == 9


def test_a_header_survives_encoding():
    told = header(max_events=3, num_events=5, realtime_ns=7, calls_not_kept=9)
    assert read_header(told).to_bytes() == told
    assert struct.unpack_from("<q", told, 96) == (read_header(told).rank,)
