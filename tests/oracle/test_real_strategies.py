"""Every strategy as a real program: several processes compute what one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"data", "spatial", "filter", "channel", "pipeline", "zero3"}
HYBRIDS = {"data_filter", "data_spatial"}


def run_ranks(num: int, *words: str) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(num),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-m", "benchmarks.testbed.strategies.check", *words]
    ranks = [
        subprocess.Popen(
            command,
            env=shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num)
    ]
    try:
        said = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * num, said
    found: dict[str, float] = json.loads(said[0][0])
    return found


@pytest.mark.parametrize(("num", "names"), [(2, ALONE), (4, ALONE | HYBRIDS)])
def test_outputs_and_gradients_are_those_of_one_process(num: int, names: set[str]) -> None:
    found = run_ranks(num)
    assert found.keys() == names
    assert all(difference < 1e-11 for difference in found.values()), found
