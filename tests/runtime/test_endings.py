"""A rank that dies takes no other one with it into an endless wait."""

from __future__ import annotations

import sys

import pytest

from tests.capture.jobs import start_ranks

pytest.importorskip("torch")


def test_a_rank_that_is_killed() -> None:
    """The other one ends with an error, long before its own patience does."""
    command = [sys.executable, "-m", "tests.runtime.endings"]
    survivor, killed = start_ranks(command, num_ranks=2)
    assert killed.returncode == -9
    assert survivor.returncode == 1
    assert "RuntimeError" in survivor.stderr
