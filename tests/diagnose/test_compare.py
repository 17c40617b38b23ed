"""Two runs compared: the gain with its interval, and whether a prediction came true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.measured_step import measured_run
from augury.core.plan.plan import Foretold, Mode, Order, Piece, Plan, Slice
from augury.core.plan.plan_file import plan_digest
from augury.core.plan.plan_status import ModeTime, PlanStatus, Replan, TrainingMode, TrialResult
from augury.core.plan.problem import Gradient, Network, Problem
from augury.core.trace.trace import CpuUse, Trace
from augury.diagnose.compare_runs import compare_runs
from augury.ingest.open_run import open_run
from augury.predict.judge_plan import check_followed
from tests.ingest.written import MS, NUM_STEPS, STEP_NS, Run


def faster(factor: float) -> Any:
    def change(record: dict[str, Any]) -> None:
        first = record["step_end_ns"][0]
        record["step_end_ns"] = [
            first + round((end - first) * factor) for end in record["step_end_ns"]
        ]
        record["windows"] = []
        record["resumed"] = []
        record["step_cpu"] = []

    return change


def run_of(
    folder: Path, factor: float = 1.0, *, num_steps: int = NUM_STEPS, **options: Any
) -> Trace:
    def change(record: dict[str, Any]) -> None:
        faster(factor)(record)
        first, second = record["step_end_ns"][:2]
        record["step_end_ns"] = [first + i * (second - first) for i in range(num_steps)]

    return open_run(Run(folder, change=change, **options).write())


def plan_of(baseline_ns: int, step_ns: int, *, width: float = 0.01) -> Plan:
    problem = Problem(
        gradients=(Gradient(name="weight", size_bytes=8, release_ns=1, need_ns=0),),
        backward_ns=1,
        forward_ns=1,
        network=Network(ns_per_byte=1.0),
    )
    whole = (Slice(gradient=0, offset_bytes=0, size_bytes=8),)
    return Plan(
        mode=Mode.PIECES,
        num_ranks=2,
        problem=problem,
        order=Order(
            policy="augury",
            pieces=(Piece(op=OpKind.ALL_REDUCE, slices=whole),),
            has_barrier=False,
        ),
        foretold=Foretold(
            baseline_ns=baseline_ns,
            step_ns=step_ns,
            interval_ns=(round(step_ns * (1 - width)), round(step_ns * (1 + width))),
            bound_ns=1,
        ),
    )


def test_the_gain_is_that_of_the_median_step(tmp_path: Path) -> None:
    found = compare_runs(run_of(tmp_path / "before"), run_of(tmp_path / "after", 0.8))
    assert found.before.step_ns == STEP_NS
    assert found.after.step_ns == 80 * MS
    assert found.gain_pct == pytest.approx(20)
    assert found.is_told_apart
    assert found.came_true is None


def test_ranks_may_be_ahead_of_each_other(tmp_path: Path) -> None:
    """By turns: every second step of one is short where the other's is long."""
    before = run_of(tmp_path / "run")
    steps = before.steps
    ahead = 1 - 2 * ((steps.step + steps.rank) % 2)
    found = measured_run(
        replace(before, steps=replace(steps, end_ns=steps.end_ns + ahead * 7 * MS))
    )
    assert found.step_ns == STEP_NS
    assert found.noise < 0.04


def test_what_only_some_ranks_saw_does_not_count(tmp_path: Path) -> None:
    before = run_of(tmp_path / "run")
    steps = before.steps
    late = (steps.rank == 1) & (steps.step == steps.step.max())
    kept = type(steps)(**{name: own[~late] for name, own in steps.columns()})
    assert measured_run(replace(before, steps=kept)).num_steps == measured_run(before).num_steps - 1
    apart = replace(steps, step=steps.step + 1000 * steps.rank)
    with pytest.raises(InputError, match="on all ranks"):
        measured_run(replace(before, steps=apart))


@pytest.mark.parametrize(
    ("promised", "kept"), [(0.80, True), (0.807, True), (0.83, False), (0.70, False), (0.95, False)]
)
def test_whether_a_prediction_came_true(tmp_path: Path, promised: float, kept: bool) -> None:
    """On a machine that is slower today by a third: shares are compared."""
    plan = plan_of(75 * MS, round(75 * MS * promised))
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", 0.8), plan)
    assert found.came_true is kept
    assert found.predicted_gain_pct == pytest.approx(100 * (1 - promised))
    assert found.predicted_step_ns == pytest.approx(STEP_NS * promised)


def test_a_wide_interval_promises_little_and_keeps_it(tmp_path: Path) -> None:
    plan = plan_of(100 * MS, 70 * MS, width=0.2)
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", 0.8), plan)
    assert found.came_true


def stretched(trace: Trace, factors: np.ndarray) -> Trace:
    """With steps that take so many times as long, on all ranks alike."""
    steps = trace.steps
    dur_ns = (steps.end_ns - steps.start_ns) * factors[steps.step - 1]
    return replace(trace, steps=replace(steps, end_ns=steps.start_ns + dur_ns.astype(np.int64)))


def flicker(rng: np.random.Generator) -> np.ndarray:
    """600 steps of noise with as much power in every octave, up to 32 times that length. Means of
    24 steps in a row vary by a standard deviation of 1 within 240 steps."""
    spectrum = np.fft.rfft(rng.standard_normal(32 * 600))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    return np.fft.irfft(spectrum)[:600] / 0.016


def loaded(trace: Trace, delay: float, cores: float) -> Trace:
    """As recorded beside other processes, which kept training threads waiting."""
    steps = trace.steps
    own_ns = steps.end_ns - steps.start_ns
    use = CpuUse(wall_ns=10**9, process_ns=10**9 // 2, machine_ns=10**9 + round(cores * 10**9))
    ranks = [msgspec.structs.replace(facts, host="one", cpu_use=use) for facts in trace.ranks]
    steps = replace(
        steps,
        end_ns=steps.end_ns + (own_ns * delay).astype(np.int64),
        delay_ns=(own_ns * delay).astype(np.int64),
    )
    return replace(trace, steps=steps, ranks=ranks)


def wandering(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two runs whose level wanders within each, and differs between them by as much."""
    runs = [np.repeat(rng.standard_normal(12), 20) + rng.standard_normal() for _ in range(2)]
    return runs[0], runs[1]


def soon_after(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two runs, one soon after the other, on a machine whose speed varies as much over long times
    as over short ones."""
    noise = flicker(rng)
    return noise[:240], noise[300:540]


@pytest.mark.parametrize("machine", [wandering, soon_after])
def test_repeats_of_a_drifting_job_are_no_gain_and_a_gain_of_steady_ones_is(
    tmp_path: Path,
    machine: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]],
) -> None:
    plain = run_of(tmp_path / "run", num_steps=240)
    rng = np.random.default_rng(11)

    def claims(drift: float, gain: float) -> int:
        number = 0
        for _ in range(40):
            runs = [
                stretched(plain, factor * np.exp(drift * wander + 0.01 * rng.standard_normal(240)))
                for factor, wander in zip((1.0, 1 - gain), machine(rng), strict=True)
            ]
            number += compare_runs(*runs).is_told_apart
        return number

    assert claims(0.03, 0.0) <= 4
    assert claims(0.005, 0.0) <= 4
    assert claims(0.005, 0.1) >= 36


def test_a_job_that_warms_up_can_be_compared(tmp_path: Path) -> None:
    """Its first steps take longer, in both runs."""
    plain = run_of(tmp_path / "run", num_steps=240)
    rng = np.random.default_rng(12)
    warm_up = np.where(np.arange(240) < 24, 1.3, 1.0)
    claims = 0
    for _ in range(20):
        before, after = (
            stretched(plain, factor * warm_up * np.exp(0.02 * rng.standard_normal(240)))
            for factor in (1.0, 0.92)
        )
        claims += compare_runs(before, after).gain_interval_pct[0] > 0
    assert claims >= 18


def test_time_without_a_core_does_not_count_where_other_processes_took_it(tmp_path: Path) -> None:
    before = run_of(tmp_path / "run")
    after = loaded(before, 0.6, 1.4)
    found = compare_runs(before, after)
    assert found.gain_source == "steps"  # the first run does not say how long it waited
    assert found.gain_pct == pytest.approx(-60)
    found = compare_runs(loaded(before, 0.0, 0.0), after)
    assert found.gain_source == "undelayed"
    assert found.gain_pct == pytest.approx(0, abs=0.1)
    assert not found.is_told_apart
    # Whole steps became slower: whether training did or the machine is not known.
    found = compare_runs(loaded(before, 0.0, 0.0), loaded(run_of(tmp_path / "fast", 0.8), 0.6, 1.4))
    assert found.gain_pct == pytest.approx(20, abs=0.1)
    assert found.gain_interval_pct[0] == pytest.approx(-28, abs=0.1)
    assert not found.is_told_apart
    # Nothing else was running: the job kept itself waiting, and that counts.
    found = compare_runs(loaded(before, 0.0, 0.0), loaded(before, 0.6, 0.0))
    assert found.gain_source == "steps"
    assert found.gain_pct == pytest.approx(-60)


def test_a_change_of_compute_is_named_and_no_gain_of_a_plan(tmp_path: Path) -> None:
    before = open_run(Run(tmp_path / "before").write())
    events = before.events
    is_backward = events.kind == OpKind.BACKWARD
    slower = replace(events, dur_ns=np.where(is_backward, events.dur_ns * 3 // 2, events.dur_ns))
    found = compare_runs(before, replace(before, events=slower))
    assert [change.kind for change in found.compute_changes] == ["backward"]
    assert found.compute_changes[0].change_pct == pytest.approx(50, abs=1)
    # Steps took a tenth longer, as long as backward did: that is not the plan's doing.
    later = stretched(replace(before, events=slower), np.full(NUM_STEPS, 1.1))
    found = compare_runs(before, later, plan_of(100 * MS, 100 * MS))
    low, high = found.gain_interval_pct
    assert low < -9
    assert high > 0


def test_updates_and_forwards_that_a_plan_moves_are_no_change_of_compute(tmp_path: Path) -> None:
    before = open_run(Run(tmp_path / "before").write())
    events = before.events
    is_moved = np.isin(events.kind, (OpKind.UPDATE, OpKind.FORWARD))
    moved = replace(events, dur_ns=np.where(is_moved, events.dur_ns // 2, events.dur_ns))
    after = replace(before, events=moved)
    assert {change.kind for change in compare_runs(before, after).compute_changes} <= {
        "update",
        "forward",
    }
    assert compare_runs(before, after).compute_changes
    status = PlanStatus(mode=TrainingMode.PLANNED, is_followed=True)
    ranks = [msgspec.structs.replace(facts, plan=status) for facts in after.ranks]
    assert compare_runs(before, replace(after, ranks=ranks)).compute_changes == []


def test_the_trial_in_the_job_counts_for_more_than_two_runs(tmp_path: Path) -> None:
    plan = plan_of(100 * MS, 81 * MS)
    before, after = run_of(tmp_path / "a"), run_of(tmp_path / "b", 1.5)
    trial = TrialResult(
        first_step=10,
        last_step=20,
        is_decided=True,
        winner=TrainingMode.PLANNED,
        times=[
            ModeTime(mode=TrainingMode.STOCK, num_blocks=4, step_ns=150 * MS),
            ModeTime(
                mode=TrainingMode.PLANNED,
                num_blocks=4,
                step_ns=120 * MS,
                gain_pct=19.5,
                interval_pct=(17.0, 22.0),
            ),
        ],
        digest=plan_digest(plan),
    )
    found = compare_runs(before, with_status(after, plan, trials=[trial]), plan)
    assert found.gain_source == "trial"
    assert found.gain_pct == pytest.approx(19.5)
    assert found.gain_interval_pct == pytest.approx((17.0, 22.0))
    assert found.came_true
    assert found.error_pct == pytest.approx(100 * (0.81 / 0.805 - 1), abs=0.01)
    # Steps of the trial are not steps of the run.
    assert found.after.num_steps < measured_run(after).num_steps


def test_the_trial_of_a_plan_is_judged_by_the_mode_that_is_the_plan(tmp_path: Path) -> None:
    """A list of buckets that did better in the same trial is not what the plan predicted."""
    plan = plan_of(100 * MS, 81 * MS)
    times = [
        ModeTime(
            mode=mode, num_blocks=4, step_ns=100 * MS, gain_pct=gain, interval_pct=(gain, gain)
        )
        for mode, gain in (
            (TrainingMode.STOCK, 0.0),
            (TrainingMode.PLANNED, 18.0),
            (TrainingMode.BUCKETS, 30.0),
        )
    ]
    trial = TrialResult(
        first_step=1,
        last_step=2,
        is_decided=True,
        winner=TrainingMode.PLANNED,
        times=times,
        digest=plan_digest(plan),
    )
    run = with_status(run_of(tmp_path / "a"), plan, trials=[trial])
    assert compare_runs(run_of(tmp_path / "b"), run, plan).gain_pct == pytest.approx(18.0)


def with_status(trace: Trace, plan: Plan, **changes: Any) -> Trace:
    status = PlanStatus(
        **{"digest": plan_digest(plan), "mode": TrainingMode.PLANNED, "is_followed": True} | changes
    )
    ranks = [msgspec.structs.replace(facts, plan=status) for facts in trace.ranks]
    return replace(trace, ranks=ranks)


def test_a_plan_that_was_not_followed_is_not_judged(tmp_path: Path) -> None:
    plan = plan_of(100 * MS, 81 * MS)
    run = run_of(tmp_path / "run")
    check_followed(with_status(run, plan), plan)
    with pytest.raises(InputError, match="recorded without a plan"):
        check_followed(run, plan)
    with pytest.raises(InputError, match="another plan"):
        check_followed(with_status(run, plan), plan_of(100 * MS, 80 * MS))
    with pytest.raises(InputError, match="the model is compiled"):
        check_followed(
            with_status(run, plan, is_followed=False, reason="the model is compiled"), plan
        )
    with pytest.raises(InputError, match="during the trial"):
        check_followed(with_status(run, plan, is_followed=False, is_on_trial=True), plan)
    anew = Replan(step=40, reason="the network takes 2 times as long", digest="a" * 64)
    with pytest.raises(InputError, match="made another plan at step 40: the network"):
        check_followed(with_status(run, plan, replans=[anew]), plan)
    check_followed(with_status(run, plan, replans=[Replan(step=40, reason="")]), plan)


def test_steps_of_a_run_are_those_after_the_optimizer_step_at_which_the_mode_settled(
    tmp_path: Path,
) -> None:
    """A program may exchange gradients several times per step: exchanges are no steps."""
    plan = plan_of(100 * MS, 81 * MS)
    run = run_of(tmp_path / "run")
    every = measured_run(run).num_steps
    settled = with_status(run, plan, from_step=10_000, settled_step=4)
    assert measured_run(settled).num_steps > every - 4
    with pytest.raises(InputError, match="no step"):
        measured_run(with_status(run, plan, from_step=10_000))


def test_runs_of_different_jobs_are_not_compared(tmp_path: Path) -> None:
    before = run_of(tmp_path / "before")
    only = before.steps.rank == 0
    steps = type(before.steps)(**{name: own[only] for name, own in before.steps.columns()})
    with pytest.raises(InputError, match="2 and 1 ranks"):
        compare_runs(before, replace(before, steps=steps))


def test_no_steps_nothing_to_compare(tmp_path: Path) -> None:
    before = run_of(tmp_path / "before")
    with pytest.raises(InputError, match="no step"):
        measured_run(replace(before, steps=before.steps.empty()))


def probed(trace: Trace, took: np.ndarray) -> Trace:
    """With the copy of memory that the recorder times: after every fourth step, as long as said."""
    speed = [(step, round(300_000 * float(took[step]))) for step in range(1, len(took), 4)]
    ranks = [msgspec.structs.replace(facts, speed=speed) for facts in trace.ranks]
    return replace(trace, ranks=ranks)


def on_a_shared_host(
    plain: Trace, rng: np.random.Generator, *, slower: float, share: float, gain: float = 0.0
) -> Trace:
    """Copies take ``slower`` times as long at the median, and wander by 5 %; steps follow them by
    ``share``."""
    wander = flicker(rng)[:240]
    speed = slower * np.exp(0.05 * (wander - np.median(wander)))
    noise = np.exp(0.01 * rng.standard_normal(240))
    return probed(stretched(plain, (1 - gain) * speed**share * noise), speed)


def test_a_slower_machine_is_no_loss_and_hides_no_gain(tmp_path: Path) -> None:
    plain = run_of(tmp_path / "run", num_steps=240)
    rng = np.random.default_rng(5)
    claimed = {"none": 0, "gain": 0, "blind": 0}
    for _ in range(30):
        before = on_a_shared_host(plain, rng, slower=1.0, share=0.8)
        again = on_a_shared_host(plain, rng, slower=1.15, share=0.8)
        faster = on_a_shared_host(plain, rng, slower=1.15, share=0.8, gain=0.15)
        found = compare_runs(before, again)
        assert found.machine_change_pct == pytest.approx(15, abs=8)
        claimed["none"] += found.is_told_apart
        claimed["gain"] += compare_runs(before, faster).gain_interval_pct[0] > 0
        no_probe = [replace(one, ranks=plain.ranks) for one in (before, faster)]
        claimed["blind"] += compare_runs(*no_probe).gain_interval_pct[0] > 0
    assert claimed["none"] <= 3
    assert claimed["gain"] >= 24
    assert claimed["blind"] <= 6


def test_steps_that_do_not_depend_on_the_machine_are_left_as_they_are(tmp_path: Path) -> None:
    """A job that waits for its network: the copy's time says nothing of it."""
    plain = run_of(tmp_path / "run", num_steps=240)
    rng = np.random.default_rng(6)
    before = on_a_shared_host(plain, rng, slower=1.0, share=0.0)
    after = on_a_shared_host(plain, rng, slower=1.2, share=0.0)
    found = compare_runs(before, after)
    assert found.gain_pct == pytest.approx(0, abs=2.5)
    assert not found.is_told_apart


def test_machines_of_which_little_is_seen_are_compared_with_caution(tmp_path: Path) -> None:
    """Copies that differ from run to run and not within runs do not tell by what share steps
    follow them."""
    plain = run_of(tmp_path / "run", num_steps=240)
    steady = np.ones(240)
    before = probed(stretched(plain, steady), steady)
    after = probed(stretched(plain, 0.92 * steady), 0.85 * steady)
    found = compare_runs(before, after)
    assert found.machine_change_pct == pytest.approx(-15, abs=0.1)
    assert not found.is_told_apart
    assert compare_runs(before, probed(stretched(plain, 0.92 * steady), steady)).is_told_apart
