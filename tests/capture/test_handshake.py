"""The clock handshake between real processes."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from augury.capture.rendezvous.clock_handshake import (
    MAX_EXCHANGES,
    MIN_EXCHANGES,
    exchange_clocks,
    num_exchanges,
)
from augury.capture.rendezvous.rendezvous import Rendezvous
from augury.capture.torch.recorder import find_job_store
from tests.capture.jobs import start_ranks

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SCRIPT = """
import json, os, sys, time
import torch.distributed as dist
import msgspec
from augury.capture.rendezvous.clock_handshake import exchange_clocks
from augury.capture.rendezvous.rendezvous import Rendezvous
from augury.capture.torch.recorder import find_job_store

dist.init_process_group("gloo")
rank = dist.get_rank()
moments = ("start", "end")
rendezvous = Rendezvous(find_job_store)
{before}
told = [record for moment in moments for record in exchange_clocks(rendezvous, moment)]
dist.barrier()
with open(os.path.join(sys.argv[1], f"{{rank}}.json"), "w") as file:
    json.dump(msgspec.to_builtins(told), file)
"""

OFF_NS = 50_000_000


def handshake(tmp_path: Path, *, num_ranks: int, before: str) -> list:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(before=before))
    for done in start_ranks([sys.executable, str(script), str(tmp_path)], num_ranks=num_ranks):
        assert done.returncode == 0, done.stderr
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(num_ranks)]


def offset_bounds_ns(exchanges: list[list[int]]) -> tuple[int, int]:
    """Returns bounds on the peer's clock minus this rank's clock, valid for any network delay."""
    return (
        max(t2 - t3 for _, _, t2, t3 in exchanges),
        min(t1 - t0 for t0, t1, _, _ in exchanges),
    )


def test_every_other_rank_has_stamps_of_both_moments(tmp_path: Path):
    """One rank has a wrong clock, and a caller without the secret interferes."""
    disturb = f"""
member = rendezvous.join()
if rank == 1:
    right = time.time_ns
    time.time_ns = lambda: right() - {OFF_NS}
if rank == 2:
    import socket
    with socket.create_connection(member.address) as stranger:
        stranger.sendall(bytes(32) + b"?" * 100)
        try:
            assert stranger.recv(1) == b""
        except ConnectionResetError:
            pass
"""
    told = handshake(tmp_path, num_ranks=3, before=disturb)
    assert told[0] == []
    for records, off_ns in zip(told[1:], (OFF_NS, 0), strict=True):
        assert [(r["peer"], r["moment"]) for r in records] == [(0, "start"), (0, "end")]
        for record in records:
            assert len(record["exchanges"]) == MAX_EXCHANGES
            low, high = offset_bounds_ns(record["exchanges"])
            assert low <= off_ns <= high


@pytest.mark.more
def test_an_absent_rank_blocks_no_other(tmp_path: Path):
    """First rank 0 is absent, then rank 1: no error, and no handshake."""
    told = handshake(tmp_path, num_ranks=2, before="moments = (('end',), ('start',))[rank]")
    assert told == [[], []]


def test_a_process_without_a_group_has_no_handshake():
    assert exchange_clocks(Rendezvous(find_job_store), "start") == []


def test_many_ranks_take_fewer_exchanges_each():
    assert num_exchanges(2) == MAX_EXCHANGES
    assert MIN_EXCHANGES < num_exchanges(256) < MAX_EXCHANGES
    assert num_exchanges(100_000) == MIN_EXCHANGES
