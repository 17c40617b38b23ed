"""``augury diff``: two runs on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from augury.core.plan.plan import Plan
from augury.core.plan.plan_file import plan_digest, save_plan
from tests.cli.conftest import Runner
from tests.diagnose.test_compare import faster, plan_of
from tests.ingest.written import MS, Run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    before = Run(tmp_path / "before", change=faster(1.0)).write()
    return before, Run(tmp_path / "after", change=faster(0.8)).write()


def planned(tmp_path: Path, plan: Plan, **status: Any) -> tuple[Path, Path]:
    """Writes a plan's file, and a run that reports the outcome of the plan."""
    save_plan(plan, tmp_path / "plan.json", force=True)

    def change(record: dict[str, Any]) -> None:
        faster(0.8)(record)
        told = {"digest": plan_digest(plan), "mode": "planned", "is_followed": True}
        record["plan"] = told | status

    folder = tmp_path / f"planned-{len(list(tmp_path.iterdir()))}"
    return tmp_path / "plan.json", Run(folder, change=change).write()


def test_the_outcome_of_a_plan_is_reported(
    run: Runner, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    plan, after = planned(tmp_path, plan_of(100 * MS, 80_500_000))
    outcome = run("diff", runs[0], after, "--plan", plan)
    assert outcome.code == 0, outcome.err
    assert "measured before" in outcome.out
    assert "+20.0 %" in outcome.out
    assert "+19.5 %" in outcome.out
    assert "inside the predicted 90 % interval; the prediction was +0.6 % off" in outcome.out
    assert "A gain: the 90 % interval of the gain is" in outcome.out


def test_a_miss_is_called_a_miss(run: Runner, runs: tuple[Path, Path], tmp_path: Path) -> None:
    plan, after = planned(tmp_path, plan_of(100 * MS, 89 * MS))
    outcome = run("diff", runs[0], after, "--plan", plan)
    assert outcome.code == 0, outcome.err
    assert "A miss" in outcome.out
    assert "+11.2 % off" in outcome.out
    assert "came true" not in outcome.out


def test_a_plan_that_was_not_followed_is_not_judged(
    run: Runner, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    reason = "the model is compiled"
    plan, after = planned(tmp_path, plan_of(100 * MS, 81 * MS), is_followed=False, reason=reason)
    outcome = run("diff", runs[0], after, "--plan", plan)
    assert outcome.code == 3
    assert "the run did not follow the plan: the model is compiled" in outcome.err
    assert "remedy: remove that cause" in outcome.err
    assert "--no-trial" not in outcome.err  # refuses it just the same
    assert not outcome.out
    without = run("diff", *runs, "--plan", plan)
    assert without.code == 3
    assert "recorded without a plan" in without.err


def test_a_plan_that_its_trial_did_not_choose_can_be_followed_regardless(
    run: Runner, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    kept = {"first_step": 6, "last_step": 125, "is_decided": True, "winner": "stock"}
    ended = {"is_on_trial": True}
    for status in ({"trials": [kept], "reason": "the trial kept stock DDP"}, ended):
        plan, after = planned(tmp_path, plan_of(100 * MS, 81 * MS), is_followed=False, **status)
        outcome = run("diff", runs[0], after, "--plan", plan)
        assert outcome.code == 3
        assert "augury run --plan PLAN --no-trial" in outcome.err
        assert ("train for more steps" in outcome.err) is (status is ended)
    anew = {"step": 40, "reason": "the network is slower", "digest": "0" * 64}
    _, after = planned(
        tmp_path, plan_of(100 * MS, 81 * MS), is_followed=False, **ended, replans=[anew]
    )
    outcome = run("diff", runs[0], after, "--plan", tmp_path / "plan.json")
    assert "the trial of another plan, which it made at step 40 (the network is" in outcome.err


def test_the_first_step_under_the_plan_is_reported(
    run: Runner, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    plan, after = planned(tmp_path, plan_of(100 * MS, 81 * MS), from_step=3)
    assert "followed from step 3." in run("diff", runs[0], after, "--plan", plan).out
    found = json.loads(run("diff", runs[0], after, "--plan", plan, "--json").out)["result"]
    assert found["followed_from_step"] == 3


def test_runs_without_plan_status_are_judged(
    run: Runner, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    def change(record: dict[str, Any]) -> None:
        faster(0.8)(record)
        del record["plan"]

    save_plan(plan_of(100 * MS, 81 * MS), tmp_path / "plan.json")
    old = Run(tmp_path / "old", change=change).write()
    outcome = run("diff", runs[0], old, "--plan", tmp_path / "plan.json")
    assert outcome.code == 0, outcome.err
    assert "does not say whether and since when the plan was followed" in outcome.out


def test_two_equal_runs_are_no_gain(run: Runner, tmp_path: Path) -> None:
    equal = [Run(tmp_path / name, change=faster(1.0)).write() for name in ("a", "b")]
    outcome = run("diff", *equal)
    assert outcome.code == 0
    assert "Neither a gain nor a loss is certain" in outcome.out


def test_runs_of_different_jobs_are_named(run: Runner, tmp_path: Path) -> None:
    def larger(record: dict[str, Any]) -> None:
        record["memory"][0]["size_bytes"] += 8_000

    def wider(record: dict[str, Any]) -> None:
        record["world_size"] = 3

    plain = Run(tmp_path / "plain").write()
    for change, said in ((larger, "the parameters of another model"), (wider, "2 ranks before, 3")):
        outcome = run("diff", plain, Run(tmp_path / change.__name__, change=change).write())
        assert outcome.code == 0, outcome.err
        assert f"The runs are of different jobs: {said}" in " ".join(outcome.out.split())
    assert "different jobs" not in run("diff", plain, plain).out


def test_alternating_runs_are_compared_pair_by_pair(run: Runner, tmp_path: Path) -> None:
    """The machine becomes slower by half during the runs, for both."""
    for number, slower in (("1", 1.0), ("2", 1.2), ("10", 1.5)):
        Run(tmp_path / "baseline" / number, change=faster(slower)).write()
        Run(tmp_path / "planned" / number, change=faster(0.8 * slower)).write()
    (tmp_path / "planned" / "11").mkdir()  # where the job was interrupted
    outcome = run("diff", tmp_path / "baseline", tmp_path / "planned")
    assert outcome.code == 0, outcome.err
    assert "A gain" in outcome.out
    assert "mean of 3 pairs of alternating runs" in outcome.out
    said = run("diff", tmp_path / "baseline", tmp_path / "planned", "--json").out
    result = json.loads(said)["result"]
    assert result["num_pairs"] == 3
    assert result["gain_pct"] == pytest.approx(20)
    low, high = result["gain_interval_pct"]
    assert 15 < low < 20 < high < 25
    alone = Run(tmp_path / "alone").write()
    mixed = run("diff", tmp_path / "baseline", alone)
    assert mixed.code == 3
    assert "no runs of the same number" in mixed.err


def test_json(run: Runner, runs: tuple[Path, Path], tmp_path: Path) -> None:
    plan, after = planned(tmp_path, plan_of(100 * MS, 60 * MS))
    outcome = run("diff", runs[0], after, "--plan", plan, "--json")
    result = json.loads(outcome.out)["result"]
    assert result["predicted_interval_ns"] == [59_400_000, 60_600_000]
    assert result["error_pct"] == pytest.approx(-25)
    assert result["gain_pct"] == pytest.approx(20)
    assert result["predicted_gain_pct"] == pytest.approx(40)
    assert result["came_true"] is False


def test_a_gain_can_be_required(run: Runner, runs: tuple[Path, Path]) -> None:
    assert run("diff", *runs, "--require-gain", "15").code == 0
    assert run("diff", *runs, "--require-gain", "25").code == 5
    missed = json.loads(run("diff", *runs, "--require-gain", "25", "--json").out)
    assert missed["result"]["gain_pct"] == pytest.approx(20)
    assert missed["error"]["exit_code"] == 5


def test_bad_input_is_refused(run: Runner, runs: tuple[Path, Path], tmp_path: Path) -> None:
    missing = run("diff", runs[0], tmp_path / "nowhere")
    assert missing.code == 3
    assert "no such file" in missing.err
    (tmp_path / "plan.json").write_text("{}")
    no_folder = run("diff", runs[0], tmp_path / "plan.json")
    assert no_folder.code == 3
    assert "not a run's folder" in no_folder.err
    assert run("diff", *runs, "--plan", tmp_path / "plan.json").code == 3


@pytest.mark.parametrize(
    ("factors", "limit", "code"),
    [
        ((1.0, 1.25), "3%", 5),
        ((1.0, 1.25), "24", 0),  # slower by 25 %, but not beyond doubt
        ((1.0, 1.25), "40 %", 0),
        ((1.0, 1.0), "3%", 0),
        ((1.0, 0.8), "0%", 0),
    ],
)
def test_a_run_that_is_slower_beyond_doubt_fails(
    run: Runner, tmp_path: Path, factors: tuple[float, float], limit: str, code: int
) -> None:
    before, after = (
        Run(tmp_path / f"run-{i}", change=faster(factor)).write()
        for i, factor in enumerate(factors)
    )
    outcome = run("diff", before, after, "--fail-above", limit)
    assert outcome.code == code, outcome.err
    assert "measured after" in outcome.out
    assert ("the second run is slower by" in outcome.err) == (code == 5)
    document = json.loads(run("diff", before, after, "--fail-above", limit, "--json").out)
    assert ("error" in document) == (code == 5)
    high = document["result"]["gain_interval_pct"][1]
    assert (high < -float(limit.rstrip(" %"))) == (code == 5)


def test_a_limit_that_is_no_percentage_is_refused(run: Runner, runs: tuple[Path, Path]) -> None:
    outcome = run("diff", *runs, "--fail-above", "3 ms")
    assert outcome.code == 2
    assert "'3 ms' is not a percentage" in outcome.err


def test_a_page_is_written_even_if_a_gate_fails(
    run: Runner, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    page = tmp_path / "diff.html"
    outcome = run("diff", *runs, "--page", page)
    assert outcome.code == 0, outcome.err
    assert f"wrote {page}" in outcome.out
    assert "A gain: the 90 % interval" in page.read_text("utf-8")
    assert run("diff", *runs, "--page", page).code == 2
    page.unlink()
    assert run("diff", *runs, "--page", page, "--require-gain", "50", "--json").code == 5
    assert page.exists()
    assert run("diff", *runs, "--page", tmp_path / "diff.txt").code == 2
