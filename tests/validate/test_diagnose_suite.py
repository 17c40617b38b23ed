from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.validate.diagnose_suite import _steps_of
from benchmarks.validate.fault_settings import FAULT_SETTINGS, FAULTS, HEALTHY, fault_of
from benchmarks.validate.schedule import BASE, BEFORE, CHANGED, WINDOW

MS = 1_000_000


def test_every_fault_has_two_cases_and_its_kinds_exist():
    from augury.diagnose.detectors.registry import DETECTORS

    known = {kind for detector in DETECTORS for kind in detector.kinds}
    for fault in FAULTS:
        cases = [setting for setting in FAULT_SETTINGS if fault_of(setting) is fault]
        assert len({setting.model for setting in cases}) == 2
        assert {*fault.finding} & known
    healthy = [setting for setting in FAULT_SETTINGS if HEALTHY in setting.name]
    assert len(healthy) == 10
    assert all(fault_of(setting) is None and not setting.changes for setting in healthy)


def block(name: str, durations_ms: list[float]) -> dict[str, object]:
    stamps = [0]
    for one in durations_ms:
        stamps.append(stamps[-1] + round(one * MS))
    return {"block": name, "warm_up": 0, "stamps_ns": stamps}


@pytest.mark.parametrize(("has_pauses", "faulty_ms"), [(False, 100.0), (True, 125.0)])
def test_steps_in_windows_do_not_count(tmp_path: Path, has_pauses: bool, faulty_ms: float):
    faulty = [100.0] * BASE
    faulty[BEFORE : BEFORE + WINDOW + 1] = [900.0] * (WINDOW + 1)
    if has_pauses:
        outside = BASE - WINDOW - 1
        faulty[0] += 25.0 * outside  # a mean of 25 ms
    rounds = [block("base:18", faulty), block("base:9@fixed", [80.0] * CHANGED)]
    for rank in range(2):
        blocks = [block("base", [500.0] * 8), *rounds, *rounds]
        (tmp_path / f"times-{rank:05d}.json").write_text(json.dumps({"blocks": blocks}))
    steps = _steps_of(tmp_path, has_pauses=has_pauses)
    assert steps.faulty_ns == pytest.approx(faulty_ms * MS)
    assert steps.fixed_ns == pytest.approx(80 * MS)
    assert steps.gain_pct == pytest.approx(100 * (1 - 80 / faulty_ms))
    assert steps.noise_pct == 0
