"""The probe of the machine's speed: seldom, short, and never too many of them."""

from __future__ import annotations

import pytest

from augury.capture import speed_probe
from augury.capture.speed_probe import MAX_PROBES, SpeedProbe


def test_it_measures_when_that_is_due_and_not_before() -> None:
    probe = SpeedProbe()
    for step in range(1, 2000):
        probe.probe(step)
    assert [step for step, _ in probe.probes][:1] == [1]
    assert len(probe.probes) <= 20  # 2,000 calls take less than 5 seconds
    assert all(took_ns > 0 for _, took_ns in probe.probes)


def test_long_jobs_are_probed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [10**9]
    monkeypatch.setattr(speed_probe.time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(speed_probe, "COPY_BYTES", 1 << 10)
    probe = SpeedProbe()
    for step in range(1, 3 * MAX_PROBES):
        now_ns[0] += speed_probe.EVERY_NS
        probe.probe(step)
    assert MAX_PROBES // 2 <= len(probe.probes) <= MAX_PROBES
    steps = [step for step, _ in probe.probes]
    assert steps == sorted(steps)
    assert steps[-1] > 3 * MAX_PROBES - 8
