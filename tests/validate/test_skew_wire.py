"""A skewed clock shifts all times of the wire recorder and nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.testbed.skew import skew_run

from augury.ingest.wire.wire_file_rows import (
    CONNECTION,
    EVENT,
    HEADER,
    SENT,
    STATE_OF_TCP,
)

AT = 10**18
MS = 1_000_000
SECOND = 10**9


def content(rank: int, host: str) -> bytes:
    header = np.zeros(1, HEADER)
    header["magic"] = b"AUGWIRE1"
    header["version"] = 1
    header["header"], header["connection"], header["event"] = 4096, 128, 64
    header["max_connections"], header["max_events"] = 2, 4
    header["num_connections"], header["num_events"] = 1, 2
    header["rank"], header["host"] = rank, host.encode()
    header["realtime_ns"], header["monotonic_ns"] = AT, 77
    connections = np.zeros(2, CONNECTION)
    connections["opened_ns"][0] = AT + SECOND
    connections["bytes"][0] = [500, 600]
    events = np.zeros(4, EVENT)
    events["number"][:2] = 1, 2
    events["start_ns"][:2] = AT + SECOND
    events["end_ns"][:2] = AT + SECOND
    events["kind"][:2] = SENT, STATE_OF_TCP
    events["refused_ns"][:2] = AT, 9
    return header.tobytes().ljust(4096, b"\0") + connections.tobytes() + events.tobytes()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(2):
        record = {"rank": rank, "host": f"host{rank}", "step_end_ns": [AT]}
        (folder / f"rank-{rank:05d}.json").write_text(json.dumps(record))
        packed = gzip.compress(content(rank, f"host{rank}"))
        (folder / f"rank-{rank:05d}.wire-{rank}-a.wire.gz").write_bytes(packed)
        (folder / f"process.wire-{rank}-b.bin").write_bytes(content(-1, f"host{rank}"))
    return folder


def test_only_the_times_of_one_host_move(run: Path, tmp_path: Path):
    skew_run(run, tmp_path / "out", rank=1, offset_ns=50 * MS, ppm=100)
    for before in run.glob("*.wire-*"):
        after = tmp_path / "out" / before.name
        old, new = before.read_bytes(), after.read_bytes()
        if before.suffix == ".gz":
            old, new = gzip.decompress(old), gzip.decompress(new)
        host = np.frombuffer(old, HEADER, 1)["host"][0]
        if host == b"host0":
            assert new == old
            continue
        expected = bytearray(old)
        np.frombuffer(expected, HEADER, 1)["realtime_ns"][:] += 50 * MS
        late = 50 * MS + SECOND // 10_000
        np.frombuffer(expected, CONNECTION, 1, 4096)["opened_ns"][:] += late
        events = np.frombuffer(expected, EVENT, 2, 4096 + 2 * 128)
        events["start_ns"] += late
        events["end_ns"] += late
        events["refused_ns"][0] += 50 * MS
        assert new == bytes(expected)


def test_processes_on_a_shared_host_keep_their_clock(run: Path, tmp_path: Path):
    """Where two ranks share a host name, the clock of a process without a rank is unknown."""
    for rank in range(2):
        path = run / f"rank-{rank:05d}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "host1"}))
    skew_run(run, tmp_path / "out", rank=1, offset_ns=50 * MS, ppm=0)
    name = "process.wire-1-b.bin"
    assert (tmp_path / "out" / name).read_bytes() == (run / name).read_bytes()
