"""Pages of diff, schedule and oracle, as text: their sections, figures, escaping and policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import augury
from augury.answers import DiffAnswer, OracleAnswer, ScheduleAnswer
from augury.core.errors import UsageError
from augury.core.measured_step import MeasuredRun
from augury.core.results.comparison import Comparison, PartChange, StepSeries
from augury.core.units import format_ns
from augury.report.page.diff_page import write_diff_page
from augury.report.page.oracle_page import write_oracle_page
from augury.report.page.schedule_page import write_schedule_page
from tests.report.page.test_run_page import (
    ATTACKS,
    GOLDEN,
    assert_self_contained,
    assert_tables_of_pictures,
    read,
)

MS = 1_000_000


def diff() -> DiffAnswer:
    return augury.open(GOLDEN / "buckets-2").diff(GOLDEN / "conv-2")


def schedule() -> ScheduleAnswer:
    return augury.open(GOLDEN / "mlp-2").schedule()


def oracle() -> OracleAnswer:
    return augury.oracle("resnet50", "abci", devices="4:64", batch_per_device=32)


ANSWERS: dict[str, Callable[[], Any]] = {"diff": diff, "schedule": schedule, "oracle": oracle}


def sections_of(path: Path) -> list[str | None]:
    return [attrs["id"] for tag, attrs in read(path).tags if tag == "section"]


def words_of(path: Path) -> str:
    return " ".join(" ".join(read(path).text).split())


def data_of(path: Path) -> dict[str, Any]:
    text = next(text for _, attrs, text in read(path).raw if attrs.get("id") == "page-data")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", ANSWERS)
def test_a_page_is_one_file_that_begins_with_a_summary(tmp_path: Path, name: str) -> None:
    page, answer = tmp_path / "page.html", ANSWERS[name]()
    answer.save_page(page)
    assert sections_of(page)[0] == "summary"
    assert_self_contained(page)
    assert_tables_of_pictures(page)
    with pytest.raises(UsageError):
        answer.save_page(page)
    answer.save_page(page, force=True)


def comparison(*changes: PartChange) -> Comparison:
    before, after = (
        MeasuredRun(
            num_ranks=4, num_steps=90, step_ns=step, low_ns=round(0.98 * step),
            high_ns=round(1.02 * step),
        )
        for step in (100 * MS, 125 * MS)
    )  # fmt: skip
    return Comparison(
        before=before, after=after, gain_pct=-25.0, gain_interval_pct=(-28.0, -22.0),
        phase_changes=list(changes), layer_changes=list(changes),
    )  # fmt: skip


def change(name: str, before_ns: int, after_ns: int, *, is_certain: bool = True) -> PartChange:
    pct = 100 * (after_ns / before_ns - 1) if before_ns else None
    return PartChange(
        name=name, before_ns=before_ns, after_ns=after_ns, change_pct=pct, noise_ns=MS,
        is_certain=is_certain,
    )  # fmt: skip


def series(*dur_ns: int, first: int = 0) -> StepSeries:
    return StepSeries(step=list(range(first, first + len(dur_ns))), dur_ns=list(dur_ns))


def test_the_page_of_a_diff_shows_where_time_changed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = comparison(
        change("backward", 40 * MS, 63 * MS),
        change("forward", 20 * MS, 19 * MS, is_certain=False),
        change("recompute", 0, 3 * MS),
    )
    steps = [(series(100 * MS, 101 * MS), series(125 * MS, 900 * MS, first=1))]
    write_diff_page(found, steps, page, names=("monday", "tuesday"))
    assert sections_of(page) == ["summary", "steps", "phases", "layers"]
    text = words_of(page)
    assert "A loss: the 90 % interval of the gain is -28.0 to -22.0 %." in text
    assert "monday and tuesday" in text
    assert all(words in text for words in ("+23 ms", "+57.5 %", "-1 ms", "-5.0 %", "+3 ms", "new"))
    assert "1 of 4 steps lie above the chart." in text
    chart = data_of(page)["charts"]["step-chart"]
    assert chart["x"] == [0, 1, 2]
    assert [one["label"] for one in chart["series"]] == ["before", "after"]
    assert [one["y"] for one in chart["series"]] == [
        [100 * MS, 101 * MS, None],
        [None, 125 * MS, 900 * MS],
    ]
    assert chart["high"] < 900 * MS
    # longer is red, shorter green; what is within noise is grey
    looks = [attrs["class"] for tag, attrs in read(page).tags if tag == "rect"]
    assert looks[-3:] == ["added", "unexplained", "added"]


def test_many_steps_are_shown_as_medians(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    long = series(*range(MS, 51_000 + MS))
    write_diff_page(comparison(), [(long, long)], page, names=("a", "b"))
    chart = data_of(page)["charts"]["step-chart"]
    assert len(chart["x"]) == 600
    assert chart["series"][0]["y"][0] == MS + 42
    assert page.stat().st_size < 300_000
    assert "medians of neighbouring steps" in words_of(page)


def test_repeated_runs_have_one_curve_each(tmp_path: Path) -> None:
    pairs = [(series(number * MS), series(2 * number * MS)) for number in (1, 2, 3)]
    write_diff_page(comparison(), pairs, tmp_path / "page.html", names=("a", "b"))
    chart = data_of(tmp_path / "page.html")["charts"]["step-chart"]
    labels = [one["label"] for one in chart["series"]]
    assert labels == [f"{when} {number}" for number in (1, 2, 3) for when in ("before", "after")]


def test_the_diff_of_recorded_runs_has_all_tables(tmp_path: Path) -> None:
    page, answer = tmp_path / "page.html", diff()
    answer.save_page(page)
    assert sections_of(page) == ["summary", "steps", "phases", "kinds", "layers", "operations"]
    steps = data_of(page)["charts"]["step-chart"]["series"]
    for run, one in zip((answer.before, answer.after), steps, strict=True):
        assert sum(value is not None for value in one["y"]) == run.num_steps
    text = words_of(page)
    assert format_ns(answer.before.step_ns) in text
    assert format_ns(answer.phase_changes[0].before_ns) in text


def test_the_page_of_a_schedule_has_policies_and_pieces(tmp_path: Path) -> None:
    page, answer = tmp_path / "page.html", schedule()
    answer.save_page(page)
    assert sections_of(page) == ["summary", "policies", "pieces", "warnings"]
    text = words_of(page)
    for one in answer.policies:
        low, high = one.interval_ns
        interval = f"{format_ns(low)} to {format_ns(high)}"
        assert f"{one.policy} {format_ns(one.step_ns)} {interval}" in text
    labels = [one["label"] for one in data_of(page)["charts"]["policy-chart"]["series"]]
    assert labels == ["released", *(one.policy for one in answer.policies)]
    rows = read(page).text
    assert sum(one.first_gradient in rows for one in answer.pieces) == len(answer.pieces)


def test_the_page_of_an_oracle_has_all_strategies(tmp_path: Path) -> None:
    page, answer = tmp_path / "page.html", oracle()
    answer.save_page(page)
    assert sections_of(page) == [
        "summary", "step-time", "efficiency", "memory", "strategies", "infeasible", "warnings",
    ]  # fmt: skip
    best = answer.recommended
    assert f"Recommended: {best.strategy} on {best.devices} devices" in words_of(page)
    charts = data_of(page)["charts"]
    drawn = {one["label"]: one["y"] for one in charts["step-time-chart"]["series"]}
    for row in answer.rows:
        value = drawn[row.strategy][charts["step-time-chart"]["x"].index(row.devices)]
        assert value == (pytest.approx(row.step_s * 1e9) if row.feasible else None)
    assert charts["memory-chart"]["series"][-1]["label"] == "memory of a device"


def test_a_sweep_without_a_feasible_strategy_has_a_page(tmp_path: Path) -> None:
    answer = augury.oracle(
        "resnet50", "abci", devices="8", global_batch=64, memory_limit_bytes=1_000
    )
    answer.save_page(tmp_path / "page.html")
    assert "No strategy is feasible." in words_of(tmp_path / "page.html")
    assert_tables_of_pictures(tmp_path / "page.html")


def test_hostile_names_stay_text_on_every_page(tmp_path: Path) -> None:
    attack = ATTACKS[0]
    bad = comparison(*(change(name, MS, 2 * MS) for name in ATTACKS))
    bad = msgspec.structs.replace(bad, policy=attack, predicted_step_ns=MS, predicted_gain_pct=1.0)
    one = series(MS, MS)
    write_diff_page(bad, [(one, one)], tmp_path / "diff.html", names=(attack, ATTACKS[1]))
    planned = schedule().result
    policies = [msgspec.structs.replace(one, policy=attack) for one in planned.policies[:1]]
    pieces = [msgspec.structs.replace(one, first_gradient=attack) for one in planned.pieces]
    planned = msgspec.structs.replace(
        planned, policies=policies, pieces=pieces, best=attack, baseline=attack, warnings=[attack]
    )
    write_schedule_page(planned, tmp_path / "schedule.html", name=attack)
    swept = msgspec.structs.replace(
        oracle().result, model=attack, cluster=attack, device=attack, constants=attack,
        notes=[attack], warnings=[attack],
    )  # fmt: skip
    write_oracle_page(swept, tmp_path / "oracle.html")
    for name in ("diff", "schedule", "oracle"):
        reader = read(tmp_path / f"{name}.html")
        assert sum(tag == "script" for tag, _ in reader.tags) == 4
        assert attack in " ".join(reader.text)
        assert_self_contained(tmp_path / f"{name}.html")
