"""The probe of the machine's speed: rare, short, and limited in number."""

from __future__ import annotations

import pytest

from augury.capture import step_log
from augury.capture.step_log import MAX_PROBES, SpeedProbe


def test_a_probe_measures_only_when_it_is_due() -> None:
    probe = SpeedProbe()
    for step in range(1, 2000):
        probe.probe(step)
    assert [step for step, _ in probe.probes][:1] == [1]
    assert len(probe.probes) <= 20  # 2,000 calls take less than 5 seconds
    assert all(took_ns > 0 for _, took_ns in probe.probes)


def test_long_jobs_are_probed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [10**9]
    monkeypatch.setattr(step_log.time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(step_log, "COPY_BYTES", 1 << 10)
    probe = SpeedProbe()
    for step in range(1, 3 * MAX_PROBES):
        now_ns[0] += step_log.MIN_PROBE_INTERVAL_NS
        probe.probe(step)
    assert MAX_PROBES // 2 <= len(probe.probes) <= MAX_PROBES
    steps = [step for step, _ in probe.probes]
    assert steps == sorted(steps)
    assert steps[-1] > 3 * MAX_PROBES - 8
