"""A rank that dies does not make another rank wait forever."""

from __future__ import annotations

import sys

import pytest

from tests.capture.jobs import start_ranks

pytest.importorskip("torch")


def test_a_killed_rank_ends_the_other_with_an_error() -> None:
    """The other rank ends with an error, long before its own timeout."""
    command = [sys.executable, "-m", "tests.runtime.endings"]
    survivor, killed = start_ranks(command, num_ranks=2)
    assert killed.returncode == -9
    assert survivor.returncode == 1
    assert "RuntimeError" in survivor.stderr
