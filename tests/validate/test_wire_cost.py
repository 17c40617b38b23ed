"""The same job with and without the wire recorder, in alternation; durations are not checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks.validate.settings import Setting
from benchmarks.validate.wire_cost import Cost, cost_of_wire, noise_pct

from augury.capture.wire.preload import LIBRARY_VARIABLE
from tests.capture.wired import build_library

SETTING = Setting(name="short", model="last", mbit=None)


def _cost(num_events: int) -> Cost:
    return Cost(
        name="short",
        setting=SETTING,
        steps=2,
        at_most_pct=10_000.0,
        num_events=num_events,
        pairs=1,
        rounds=2,
    )


@pytest.mark.more
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_two_jobs_alternate_and_end_with_the_same_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(build_library(tmp_path)))
    checks = {check.kind: check for check in cost_of_wire(_cost(512), tmp_path / "cost")}
    assert set(checks) == {"cost", "loss", "memory"}, checks
    assert all(check.holds for check in checks.values()), checks
    assert checks["cost"].noise is not None
    assert sorted(path.name for path in (tmp_path / "cost").iterdir()) == ["pair-0"]


def test_a_missing_recorder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    (check,) = cost_of_wire(_cost(512), tmp_path / "cost")
    assert not check.holds
    assert "recorder" in (check.trouble or "")


def test_noise_is_the_difference_of_two_interleaved_halves():
    assert noise_pct([1.0, 1.01, 1.0, 1.01]) == pytest.approx(2.0)
    assert noise_pct([1.02] * 6) == 0
