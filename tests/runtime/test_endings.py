"""However a training ends, no process is left waiting."""

from __future__ import annotations

import sys

import pytest

from tests.capture.jobs import start_ranks

pytest.importorskip("torch")


def _ends(way: str) -> list:
    return start_ranks([sys.executable, "-m", "tests.runtime.endings", way], num_ranks=2)


def test_an_error() -> None:
    for process in _ends("raised"):
        assert process.returncode == 1
        assert "ValueError: on purpose" in process.stderr


def test_a_rank_that_is_killed() -> None:
    """The other one ends with an error, long before its own patience does."""
    survivor, killed = _ends("killed")
    assert killed.returncode == -9
    assert survivor.returncode == 1
    assert "RuntimeError" in survivor.stderr
