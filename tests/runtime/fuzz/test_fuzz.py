"""Random programs end under random plans as under stock DDP, and none of them hangs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")
from tests.runtime.fuzz.generate import program_of

COUNT = 40
FIRST_SEED = 0


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """In processes of their own: ranks are forked from one that has not used torch."""
    path = tmp_path_factory.mktemp("fuzz") / "tally.json"
    options = ["--seed", str(FIRST_SEED), "--count", str(COUNT), "--out", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.fuzz", *options],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode in (0, 5), done.stderr
    return json.loads(path.read_text())


def test_programs_end_as_under_stock_ddp(tally: dict) -> None:
    assert tally["programs"] == COUNT
    assert not tally["seeds"], json.dumps(tally["failures"], indent=1)
    assert tally["mismatches"] == tally["hangs"] == 0


def test_most_programs_follow_a_plan(tally: dict) -> None:
    """A campaign in which plans are refused, or never change, shows nothing."""
    assert tally["followed"] >= 0.8 * COUNT, tally["reasons"]
    assert tally["replanned"] >= 0.05 * COUNT
    assert tally["switched"] >= 0.25 * COUNT
    assert tally["stock_raised"] <= 0.05 * COUNT
    assert set(tally["by_ranks"]) == {"2", "3", "4"}


def test_a_seed_is_one_program() -> None:
    assert program_of(5) == program_of(5)
    assert len({repr(program_of(seed)) for seed in range(50)}) == 50
