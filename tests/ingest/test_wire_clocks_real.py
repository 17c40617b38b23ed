"""Real jobs over loopback, with ranks as if on hosts of their own with wrong clocks."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.testbed.skew import Skew, skew_run

from augury.capture.wire.preload import LIBRARY_VARIABLE
from augury.ingest.clocks.rank_clocks import to_common
from augury.ingest.recorded import clock_sources, read_run
from augury.ingest.wire.wire_file_rows import CONNECTION, HEADER

from ..capture.jobs import start_ranks, write_training
from ..capture.wired import build_library

pytest.importorskip("torch")

US, MS = 1_000, 1_000_000
ANYWHERE = {4: bytes([10, 9, 9, 9]), 6: bytes([0xFD, *[0] * 14, 9])}
"""An address that is not the loopback's, which would mean another machine on every host."""


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs a C compiler")
    return build_library(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.more)])
def run(recorder: Path, tmp_path_factory: pytest.TempPathFactory, request) -> Path:
    folder = tmp_path_factory.mktemp(f"of-{request.param}")
    augury = [sys.executable, "-m", "augury", "run", "--out", str(folder / "run")]
    options = ["--steps=10:20,30:40", "--wire", "--wire-events=65536"]
    job = [*augury, *options, str(write_training(folder)), "60"]
    for done in start_ranks(job, num_ranks=request.param, **{LIBRARY_VARIABLE: str(recorder)}):
        assert done.returncode == 0, done.stderr
    spread_out(folder / "run")
    return folder / "run"


def spread_out(folder: Path) -> None:
    """Moves every rank to a host of its own, and processes without a rank to that of rank 0."""
    for path in folder.glob("rank-?????.json"):
        told = json.loads(path.read_text())
        path.write_text(json.dumps(told | {"host": f"host{told['rank']}"}))
    for path in folder.glob("*.wire-*.wire.gz"):
        data = bytearray(gzip.decompress(path.read_bytes()))
        header = np.frombuffer(data, HEADER, 1)
        header["host"] = f"host{max(0, int(header['rank'][0]))}".encode()
        count, at = int(header["num_connections"][0]), int(header["header"][0])
        connections = np.frombuffer(data, CONNECTION, count, at)
        for row, family in enumerate(connections["family"].tolist()):
            address = np.void(ANYWHERE[family].ljust(16, b"\0"))
            connections["own"][row] = connections["peer"][row] = address
        path.write_bytes(gzip.compress(data, 1))


def off_ns(folder: Path, original: Path, rank: int, skew: Skew) -> int:
    """Largest error of a rank's clock after correction by the wire alone."""
    clock = read_run(folder, clocks="wire").ranks[rank].clock
    assert clock.source == "wire"
    true_ns = json.loads((original / f"rank-{rank:05d}.json").read_text())["step_end_ns"]
    own = np.array([skew.shift(ns) for ns in true_ns], dtype=np.int64)
    return int(np.abs(to_common(clock, own) - np.array(true_ns)).max())


@pytest.mark.parametrize("offset_ms", [-50, 50])
def test_a_wrong_clock_is_corrected_by_messages_alone(run: Path, tmp_path: Path, offset_ms: int):
    injected: dict[int, Skew] = {}
    folder = run
    for rank, sign in ((1, 1), (len(list(run.glob("rank-?????.json"))) - 1, -1)):
        if rank in injected:
            continue
        out = tmp_path / f"skewed-{rank}"
        injected[rank] = skew_run(
            folder, out, rank=rank, offset_ns=sign * offset_ms * MS, ppm=sign * 100.0
        )
        folder = out
    for rank, skew in injected.items():
        assert off_ns(folder, run, rank, skew) < 200 * US


def test_all_sources_agree_within_their_residuals(run: Path):
    """All ranks share one true clock: each source may be off by its residual."""
    sources = clock_sources(run)
    assert sorted(sources) == ["collectives", "handshake", "wire"]
    ends = json.loads((run / "rank-00001.json").read_text())["step_end_ns"]
    inside = np.array([ends[9], ends[39]], dtype=np.int64)
    for source in ("handshake", "wire"):
        clock = sources[source][1]
        off = np.abs(to_common(clock, inside) - inside).max()
        assert off <= clock.residual_ns, source
