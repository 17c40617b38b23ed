"""Rows and checks of the trainers suite, from records of jobs with known steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.validate.gates import Gates, PooledGates, broken
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.running_job import WINDOWS_DONE, RunningJob
from benchmarks.validate.suite import chosen
from benchmarks.validate.trainers_rates import SETTLING_STEPS, Stretch
from benchmarks.validate.trainers_rows import halved_steps
from benchmarks.validate.trainers_settings import CASES
from benchmarks.validate.trainers_suite import TRAINERS
from benchmarks.validate.tried_plan import tried_plan

from augury.core.plan.plan import CommunicationSection, Mode, communication_plan
from augury.core.plan.plan_file import save_plan
from augury.core.plan.problem import Gradient, Network, Problem
from augury.runtime.trial import TrialRules
from augury.schedule.policies.registry import find_policy

MS = 1_000_000
START_NS = 10**18


def ends_of(durations_ns: list[int]) -> list[int]:
    return [START_NS + sum(durations_ns[: i + 1]) for i in range(len(durations_ns))]


def test_steps_at_half_the_rate_are_found_by_their_times(tmp_path: Path) -> None:
    """Steps 11 to 20 and 31 to 40 are slower; a window in the second stretch is left out."""
    durations = [(100 if step // 10 % 2 == 0 else 170) * MS for step in range(40)]
    ends = ends_of(durations)
    first = Stretch(is_halved=True, start_ns=ends[9] - 1, end_ns=ends[19] + 1)
    assert first.steps(ends) == range(11 + SETTLING_STEPS, 21)
    before = Stretch(is_halved=False, start_ns=0, end_ns=ends[9] - 1)
    assert before.steps(ends) == range(1, 10)
    between = Stretch(is_halved=False, start_ns=ends[19] + 1, end_ns=ends[29])
    assert between.steps(ends) == range(22 + SETTLING_STEPS, 31)
    second = Stretch(is_halved=True, start_ns=ends[29] - 1, end_ns=ends[39])
    record = {
        "step_end_ns": ends,
        "resumed": [],
        "windows": [{"first": 33, "last": 36, "mode": "light"}],
    }
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "rank-00000.json").write_text(json.dumps(record))
    stretches = [
        {"is_halved": one.is_halved, "start_ns": one.start_ns, "end_ns": one.end_ns}
        for one in (before, first, between, second)
    ]
    (tmp_path / "stretches.json").write_text(json.dumps(stretches))
    measured = halved_steps(tmp_path)
    assert measured.step_ns == 170 * MS
    assert measured.num_steps == 8 + 4


def test_windows_of_the_recorder_are_read_from_its_messages(tmp_path: Path) -> None:
    class Launcher:
        def poll(self) -> None:
            return None

    log = tmp_path / "log"
    job = RunningJob([Launcher()], [log])  # type: ignore[list-item]
    said = [f"augury: recording steps {first}-{first + 4}" for first in (11, 18)]
    log.write_text("\n".join([*said, WINDOWS_DONE, "augury: recording steps 39-43", ""]))
    job._last_window, job._num_windows = (18, 0.0), 2
    gap = job.next_gap()
    assert gap is not None
    assert gap[0] == 39 - 18
    assert gap[1] > 0


def _problem() -> Problem:
    gradients = tuple(
        Gradient(name=f"{n}.weight", size_bytes=4_000_000, release_ns=(3 - n) * MS, need_ns=n * MS)
        for n in range(3)
    )
    return Problem(
        gradients=gradients, backward_ns=3 * MS, forward_ns=3 * MS, network=Network(ns_per_byte=8.0)
    )


def _trial_in(folder: Path, step_ms: dict[str, int], *, drift_ms: int = 0) -> None:
    """Writes a plan in pieces, and the records of a job that tried it for four rounds."""
    problem = _problem()
    order = find_policy("p3").compile(problem)
    section = CommunicationSection(mode=Mode.PIECES, problem=problem, order=order)
    save_plan(communication_plan(section, num_ranks=2), folder / "plan.json", force=False)
    rules, modes = TrialRules(), [*step_ms]
    first = 1 + rules.warm_up_steps
    durations = [100 * MS] * (first - 1)
    for number in range(rules.least_rounds):
        for mode in modes if number % 2 == 0 else reversed(modes):
            durations += [(step_ms[mode] + drift_ms * (number % 2)) * MS] * rules.block_steps
    trial: dict[str, Any] = {
        "first_step": first,
        "last_step": len(durations),
        "is_decided": True,
        "winner": "planned",
        "times": [{"mode": mode, "num_blocks": 4, "step_ns": 1} for mode in modes],
    }
    (folder / "planned").mkdir()
    for rank in range(2):
        # Under a plan ranks are ahead of each other in turns.
        own = [ns + (-1) ** (step + rank) * 20 * MS for step, ns in enumerate(durations)]
        record = {"step_end_ns": ends_of(own), "plan": {"trials": [trial]}}
        (folder / "planned" / f"rank-{rank:05d}.json").write_text(json.dumps(record))


def test_the_gain_of_a_plan_is_that_of_the_rounds_of_its_trial(tmp_path: Path) -> None:
    _trial_in(tmp_path, {"stock": 100, "planned": 80, "buckets": 90})
    tried = tried_plan(tmp_path / "planned")
    assert tried is not None
    assert tried.gain_pct == pytest.approx(20)
    assert tried.noise_pct == pytest.approx(0)
    assert tried.num_steps == 4 * 8


def test_rounds_that_disagree_are_noise(tmp_path: Path) -> None:
    _trial_in(tmp_path, {"stock": 100, "planned": 80}, drift_ms=20)
    tried = tried_plan(tmp_path / "planned")
    assert tried is not None
    assert tried.noise_pct == pytest.approx(100 * (100 / 120 - 0.8) / (90 / 110), rel=0.01)


def test_no_plan_gives_no_row(tmp_path: Path) -> None:
    assert tried_plan(tmp_path / "planned") is None


def row(error_pct: float, *, half_width_pct: float = 6.0, noise_pct: float = 0.0) -> Row:
    measured_ns, width_ns = 100 * MS, round(half_width_pct * MS)
    predicted_ns = round((100 + error_pct) * MS)
    return Row(
        suite="trainers",
        case="one",
        kind="replay",
        measured_ns=measured_ns,
        predicted_ns=predicted_ns,
        interval_ns=(predicted_ns - width_ns, predicted_ns + width_ns),
        noise_pct=noise_pct,
    )


GATES = Gates(pooled=PooledGates(within=0.85, covered=0.85, half_width_pct=8.0))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(1)] * 17 + [row(5.5)] * 3, None),
        ([row(1)] * 16 + [row(5.5)] * 4, "rows are within"),
        ([row(1)] * 16 + [row(5.5, noise_pct=6)] * 4, None),
        ([row(1)] * 16 + [row(-4, half_width_pct=1)] * 4, "intervals cover"),
        ([row(1, half_width_pct=9)] * 20, "half width"),
    ],
)
def test_gates_count_rows_of_all_kinds_together(rows: list[Row], words: str | None) -> None:
    found = broken(rows, [], summarize(rows), GATES)
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


def test_every_trainer_has_two_models_and_quick_has_a_case() -> None:
    trainers = [case.name.partition("-")[0] for case in CASES]
    assert {name: trainers.count(name) for name in trainers} == dict.fromkeys(
        ("hf", "accelerate", "lightning", "fsdp2", "compiled"), 2
    )
    assert len(chosen(TRAINERS.settings, ",".join(TRAINERS.quick))) == 1
