"""Too many and too few threads of CPU jobs: a recorded run with other threads and cores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import augury
from augury.core.results.diagnosis import Diagnosis, Finding
from tests.golden.expected import RUNS


def diagnosis(
    folder: Path,
    *,
    num_threads: int,
    cores: int = 16,
    busy: float = 0.25,
    other: float = 0.0,
    delay: float = 0.0,
    **facts: Any,
) -> Diagnosis:
    """A compute-bound run of two ranks on one host. ``busy`` and ``other`` are shares of the cores
    that the ranks and other processes use, ``delay`` the share of steps without a core."""
    run = folder / "run"
    shutil.copytree(RUNS / "pieces-2", run, ignore=shutil.ignore_patterns("*.columns", "run.json"))
    for path in sorted(run.glob("rank-0000?.json")):
        record = json.loads(path.read_text())
        ends = record["step_end_ns"]
        wall_ns = 10**10
        own_ns = int(busy * cores * wall_ns / 2)
        all_ns = int((busy + other) * cores * wall_ns)
        waited = [int(delay * (end - ends[0])) for end in ends]
        record |= {
            "cores": cores,
            "core_numbers": list(range(cores)),
            "num_threads": num_threads,
            "machine": [[ends[0], 0, 0], [ends[0] + wall_ns, all_ns, own_ns]],
            "step_delay_ns": waited,
            "step_cpu": [
                [step, cpu, waited[step - 1] if step else 0, process]
                for step, cpu, _, process in record["step_cpu"]
            ],
        }
        path.write_text(json.dumps(record | facts))
    return augury.open(run).diagnose().result


def only(found: Diagnosis, kind: str) -> list[Finding]:
    return [one for one in found.findings if one.kind == kind]


def test_few_threads_on_idle_cores_are_found(tmp_path: Path):
    (one,) = only(diagnosis(tmp_path, num_threads=1), "too-few-threads")
    assert one.command == "OMP_NUM_THREADS=4"
    assert "torch.set_num_threads(4)" in one.action
    assert one.confidence == "low"
    assert one.gain_pct is None
    figures = {each.name: each.value for each in one.evidence}
    assert figures["threads of the ranks of the host"] == 2
    assert figures["cores of the host"] == 16
    assert figures["cores in use, on average"] == 4


@pytest.mark.parametrize(
    "facts",
    [
        {"num_threads": 1, "cores": 2, "busy": 0.9},  # two ranks of one thread on two cores
        {"num_threads": 1, "cores": 2, "busy": 0.4},
        {"num_threads": 1, "cores": 4},  # two logical cores may be one
        {"num_threads": 4},
        {"num_threads": 1, "busy": 0.6},
        {"num_threads": 1, "other": 0.2},  # other processes use the cores
        {"num_threads": 1, "delay": 0.1},  # threads wait for a core
        {"num_threads": 1, "cpu_limit": 2.0},  # a limit of the control group
        {"num_threads": 1, "cpu_limit": 0.5},
    ],
)
def test_few_threads_are_no_finding_where_no_core_is_free(tmp_path: Path, facts: dict[str, Any]):
    found = diagnosis(tmp_path, **facts)
    assert only(found, "too-few-threads") == []
    assert "too-few-threads" not in found.not_examined


@pytest.mark.parametrize("facts", [{"num_threads": 0}, {"core_numbers": []}, {"machine": []}])
def test_without_these_facts_threads_are_not_examined(tmp_path: Path, facts: dict[str, Any]):
    found = diagnosis(tmp_path, **{"num_threads": 1} | facts)
    assert "too-few-threads" in found.not_examined


def test_more_threads_than_cores_are_named_as_the_cause(tmp_path: Path):
    found = diagnosis(tmp_path, num_threads=8, cores=4, busy=1.0, delay=0.4)
    (one,) = only(found, "core-contention")
    assert one.command == "OMP_NUM_THREADS=2"
    assert "16 intra-op threads on 4 cores" in one.action
    figures = {each.name: each.value for each in one.evidence}
    assert figures["intra-op threads of the ranks of a host"] == 16
    assert figures["cores that these ranks share"] == 4


def test_ranks_with_one_thread_are_not_told_to_use_one(tmp_path: Path):
    found = diagnosis(tmp_path, num_threads=1, cores=2, busy=0.5, other=0.5, delay=0.4)
    (one,) = only(found, "core-contention")
    assert one.command == ""
    assert "no other jobs" in one.action
    assert "one intra-op thread each" in one.action
