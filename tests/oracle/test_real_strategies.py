"""Every strategy as a real program: several processes compute the same as one."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.capture.jobs import start_ranks

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"data", "spatial", "filter", "channel", "pipeline", "zero3"}
HYBRIDS = {"data_filter", "data_spatial"}


def run_ranks(num: int, *words: str) -> dict[str, float]:
    done = start_ranks(
        [sys.executable, "-m", "benchmarks.testbed.strategies.check", *words],
        num_ranks=num,
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        GLOO_SOCKET_IFNAME="lo",
    )
    assert [rank.returncode for rank in done] == [0] * num, done
    found: dict[str, float] = json.loads(done[0].stdout)
    return found


@pytest.mark.more
@pytest.mark.parametrize(("num", "names"), [(2, ALONE), (4, ALONE | HYBRIDS)])
def test_outputs_and_gradients_are_those_of_one_process(num: int, names: set[str]) -> None:
    found = run_ranks(num)
    assert found.keys() == names
    assert all(difference < 1e-11 for difference in found.values()), found
