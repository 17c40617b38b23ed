"""Measurements of validation, and the steps withheld from predictions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.testbed.skew import skew_run
from benchmarks.validate.measured import of_blocks, of_record, slowing
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.schedule import CHANGED, WARM_UP, WINDOW, Schedule
from benchmarks.validate.settings import SETTINGS, Setting, bucket
from benchmarks.validate.suite import chosen
from benchmarks.validate.withhold import without_others

MS = 1_000_000
PLAIN, RECORDED, HELD, CHANGED_STEP = 100 * MS, 104 * MS, 900 * MS, 50 * MS


def _record_of(schedule: Schedule, num_steps: int) -> dict:
    """A job in which every step of a kind takes the same time."""
    windows = schedule.windows
    kept = {step for first, last in schedule.kept for step in range(first, last + 1)}
    now, ends, resumed = 10**18, [], []
    for step in range(1, num_steps + 1):
        inside = any(first < step <= last for first, last in windows)
        now += RECORDED if inside else PLAIN if step in kept else CHANGED_STEP
        ends.append(now)
        if any(step in window for window in windows):
            now += HELD
            resumed.append([step, now])
    return {
        "rank": 0,
        "step_end_ns": ends,
        "resumed": resumed,
        "step_cpu": [[step, 1, 2, 3] for first, last in windows for step in range(first, last + 1)],
        "windows": [{"first": a, "last": b, "mode": "light"} for a, b in windows],
    }


@pytest.mark.parametrize("num_changes", [0, 3])
def test_changes_are_withheld_and_plain_steps_measured(num_changes: int, tmp_path: Path):
    changes = tuple(bucket(str(cap)) for cap in range(num_changes))
    schedule = Schedule(Setting(name="one", model="last", mbit=None, changes=changes))
    record = _record_of(schedule, 2000 if changes else schedule.first_steps)
    seen = without_others(record, schedule.kept)
    (tmp_path / "rank-00000.json").write_text(json.dumps(seen))
    measured = of_record(tmp_path)
    assert measured.plain.step_ns == PLAIN
    assert measured.plain.noise_pct == 0
    assert measured.plain.num_steps >= 30
    assert measured.recorded_ns == RECORDED
    assert measured.cost_pct == pytest.approx(4)
    assert len(seen["windows"]) == schedule.setting.rounds
    inside = [
        seen["step_end_ns"][step - 1] - seen["step_end_ns"][step - 2]
        for window in seen["windows"]
        for step in range(window["first"] + 2, window["last"] + 1)
    ]
    assert set(inside) == {RECORDED}
    assert len(seen["step_cpu"]) == schedule.setting.rounds * (WINDOW + 1)
    # Every step begins at the end of the one before or when the job was let go: none is changed.
    began = dict(seen["resumed"])
    ends = seen["step_end_ns"]
    durations = {ends[i] - began.get(i, ends[i - 1]) for i in range(1, len(ends))}
    assert durations == {PLAIN, RECORDED}


def test_blocks_are_measured_in_two_interleaved_halves(tmp_path: Path):
    blocks = [{"block": "base", "warm_up": 0, "stamps_ns": [0, 1]}]
    for turn in range(4):
        took = 100 if turn % 2 else 110
        stamps = [10_000 * i for i in range(WARM_UP)]
        stamps += [stamps[-1] + took * i for i in range(1, CHANGED + 2)]
        blocks.append(
            {"block": f"cap=1:{CHANGED}@bucket-1", "warm_up": WARM_UP, "stamps_ns": stamps}
        )
    (tmp_path / "times-00000.json").write_text(json.dumps({"blocks": blocks}))
    found = of_blocks(tmp_path)
    assert list(found) == ["bucket-1"]
    assert found["bucket-1"].num_steps == 4 * CHANGED
    assert found["bucket-1"].noise_pct == pytest.approx(100 * 10 / 105)


def test_a_skewed_run_differs_in_nothing_but_one_rank_s_clock(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    for rank in range(2):
        record = {
            "rank": rank,
            "step_end_ns": [10**18, 10**18 + 10**9],
            "resumed": [[1, 10**18 + 5]],
            "calls": [[10**18, 10**18 + 7, "barrier", "0", 1, 0, -1]],
            "handshake": [{"peer": 1 - rank, "moment": "start", "exchanges": [[10**18] * 4]}],
        }
        (run / f"rank-{rank:05d}.json").write_text(json.dumps(record))
        trace = {
            "baseTimeNanoseconds": 10**18,
            "traceEvents": [{"ph": "X", "ts": 10**6, "dur": 10**4}],
        }
        with gzip.open(run / f"rank-{rank:05d}.0.trace.json.gz", "wt") as file:
            json.dump(trace, file)
    skew_run(run, tmp_path / "out", rank=1, offset_ns=50 * MS, ppm=100)
    other, own = (
        json.loads((tmp_path / "out" / f"rank-{rank:05d}.json").read_text()) for rank in range(2)
    )
    at = 10**18
    assert own["step_end_ns"] == [at + 50 * MS, at + 10**9 + 50 * MS + 100_000]
    assert own["resumed"] == [[1, at + 5 + 50 * MS]]
    assert own["calls"][0][:3] == [at + 50 * MS, at + 7 + 50 * MS, "barrier"]
    assert own["handshake"][0]["exchanges"] == [[at + 50 * MS, at, at, at + 50 * MS]]
    assert other["handshake"][0]["exchanges"] == [[at, at + 50 * MS, at + 50 * MS, at]]
    assert other["step_end_ns"] == [at, at + 10**9]
    with gzip.open(tmp_path / "out" / "rank-00001.0.trace.json.gz", "rt") as file:
        (event,) = json.load(file)["traceEvents"]
    assert event["ts"] == 10**6 + 50_000 + 100
    assert event["dur"] == 10_001
    skew_run(run, tmp_path / "bare", rank=1, offset_ns=0, ppm=0, handshake=False)
    assert json.loads((tmp_path / "bare" / "rank-00000.json").read_text())["handshake"] == []


def _row(predicted: int, noise: float = 0.0, interval: tuple[int, int] | None = None) -> Row:
    return Row(
        suite="torch",
        case="one",
        kind="whatif",
        measured_ns=1000,
        predicted_ns=predicted,
        interval_ns=interval,
        noise_pct=noise,
    )


def test_noise_widens_the_tolerance():
    assert [_row(1050).is_within, _row(1060).is_within, _row(1060, 4).is_within] == [
        True,
        False,
        True,
    ]
    rows = [_row(1060, interval=(980, 1140)), _row(990, interval=(980, 999))]
    found = summarize(rows)["whatif"]
    assert (found["within"], found["covered"], found["with_interval"]) == (1, 1, 2)
    assert found["median_error_pct"] == 3.5
    assert found["median_half_width_pct"] == pytest.approx(4.25, abs=0.01)


def test_the_number_of_cases_is_as_documented():
    assert len(SETTINGS) >= 12
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert sum(len(setting.changes) for setting in SETTINGS) >= 24


def test_no_two_changes_of_a_setting_make_the_same_buckets():
    """Nor those of the recorded configuration: each change counts once."""
    pytest.importorskip("torch")
    from benchmarks.testbed.models import WORKLOADS

    from augury.schedule.order_parts import MEBIBYTE, fill_buckets

    def buckets(model: str, caps: str) -> str:
        sizes_bytes = [4 * one.numel() for one in WORKLOADS[model].build().parameters()]
        caps_bytes = [round(float(cap) * MEBIBYTE) for cap in caps.split(",")]
        return repr(fill_buckets(sizes_bytes[::-1], caps_bytes))

    for setting in SETTINGS:
        caps = [change.whatif[1] for change in setting.changes if "--bucket-mb" in change.whatif]
        layouts = [buckets(setting.model, one) for one in [*caps, setting.cap]]
        assert len(set(layouts)) == len(layouts), setting.name


def test_settings_that_measure_a_change_are_chosen_with_it():
    assert {setting.name for setting in chosen(SETTINGS, "last-2ranks/*")} == {
        "last-2ranks",
        "last-4ranks",
    }
    assert [setting.name for setting in chosen(SETTINGS, "conv-1gbit*")] == ["conv-1gbit"]


def test_the_slowdown_of_a_host_is_measured(tmp_path: Path):
    def block(words: str, forward_ns: int) -> dict[str, object]:
        return {"block": words, "warm_up": 1, "stamps_ns": [], "forward_ns": [9, forward_ns]}

    blocks = [block("base", 1), block("base:18", 100), block("base:9@slow-1:1.5", 140)]
    (tmp_path / "times-00001.json").write_text(json.dumps({"blocks": blocks}))
    assert slowing(tmp_path, "slow-1:1.5", 1) == pytest.approx(1.4)
