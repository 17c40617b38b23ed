"""``augury whatif``: every change, alone and together, on a run and on a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.graph.graph_file import save_graph
from augury.core.trace.trace_file import write_trace
from augury.passes.protocol import Scene, unchanged
from augury.predict import changes
from tests.build.recorded_runs import ddp_run
from tests.cli.conftest import Runner
from tests.cli.test_main import one_message
from tests.cli.test_replay import DOCUMENTED
from tests.ingest.written import Run
from tests.replay.test_deadlock import crossed

CHANGES = {
    "bandwidth": ["--bandwidth", "0.5x"],
    "a rate": ["--bandwidth", "2Gbit/s"],
    "latency": ["--latency", "2x"],
    "more latency": ["--latency", "+50us"],
    "ranks": ["--ranks", "4"],
    "fewer ranks": ["--ranks", "1"],
    "a bucket": ["--bucket-mb", "25"],
    "buckets": ["--bucket-mb", "1,5,25"],
    "compute": ["--compute-scale", "1.5"],
    "one rank": ["--compute-scale", "1:1.5"],
    "stragglers": ["--no-straggler"],
    "overlap": ["--perfect-overlap"],
}
RUN = ddp_run(
    num_steps=4,
    slower={1: 1.3},
    buckets=((0, 1, 2), (3,)),
    ns_per_byte=4.0,
    compute_rate=0.8,
    vary={(0, 1): 1.05},
).trace()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "recorded"
    path.mkdir()
    write_trace(RUN, path)
    return path


def asked(run: Runner, path: Path, *options: str) -> dict[str, Any]:
    outcome = run("whatif", path, *options, "--json")
    assert outcome.err == ""
    assert outcome.code == 0
    return json.loads(outcome.out)


@pytest.mark.parametrize("options", CHANGES.values(), ids=list(CHANGES))
def test_every_change_is_predicted(run: Runner, folder: Path, options: list[str]) -> None:
    document = asked(run, folder, *options)
    baseline = json.loads(run("replay", folder, "--json").out)["predicted_step_ns"]
    assert document["baseline_step_ns"] == baseline
    after = document["predicted_step_ns"]
    assert document["gain_pct"] == pytest.approx(100 * (1 - after / baseline), abs=1e-3)
    low, high = document["interval_ns"]
    assert low < after < high
    assert len(document["changes"]) == 1


def test_json_has_the_documented_fields(run: Runner, folder: Path) -> None:
    document = asked(run, folder, "--bandwidth", "2x")
    of_the_change = {"measured_step_ns", "error_pct", "unexplained_pct", "interval_ns"}
    for key, kind in DOCUMENTED.items():
        if key not in of_the_change:
            assert isinstance(document[key], kind), key
    assert document["schema_version"] == 1
    assert document["changes"] == ["bandwidth 2x"]
    # A predicted change has no measurement.
    assert document["measured_step_ns"] is document["error_pct"] is None
    assert all(isinstance(end, int) for end in document["interval_ns"])
    replayed = json.loads(run("replay", folder, "--json").out)
    assert set(document) - set(replayed) == {"changes", "baseline_step_ns", "gain_pct"}


def test_gains_have_the_expected_sign(run: Runner, folder: Path) -> None:
    gains = {name: asked(run, folder, *options)["gain_pct"] for name, options in CHANGES.items()}
    assert gains["bandwidth"] < -5
    assert gains["latency"] <= 0
    assert gains["ranks"] < 0 < gains["fewer ranks"]
    assert gains["compute"] <= gains["one rank"] < 0
    assert gains["stragglers"] > 0
    assert gains["overlap"] > 0


def test_changes_combine(run: Runner, folder: Path) -> None:
    every = ["--ranks", "3", "--bucket-mb", "2", "--bandwidth", "2x", "--latency", "0.5x"]
    every += ["--no-straggler", "--compute-scale", "0.9", "--compute-scale", "2:1.2"]
    document = asked(run, folder, *every, "--perfect-overlap")
    assert len(document["changes"]) == 8
    assert document["num_ranks"] == 3
    one = asked(run, folder, "--bandwidth", "2x")
    both = asked(run, folder, "--bandwidth", "2x", "--compute-scale", "0.5")
    assert both["predicted_step_ns"] < one["predicted_step_ns"]
    width = [own["interval_ns"][1] / own["predicted_step_ns"] for own in (one, both)]
    assert width[1] > width[0]


def test_an_absolute_rate_is_that_of_the_link(run: Runner, folder: Path) -> None:
    """2 ranks at 4 ns a byte send 250 MB/s."""
    assert asked(run, folder, "--bandwidth", "250MB/s")["gain_pct"] == pytest.approx(0, abs=0.5)
    more = asked(run, folder, "--ranks", "4")["predicted_step_ns"]
    same = asked(run, folder, "--ranks", "4", "--bandwidth", "250MB/s")["predicted_step_ns"]
    assert same == pytest.approx(more, rel=0.005)


def test_the_change_is_described_in_words(run: Runner, folder: Path) -> None:
    outcome = run("whatif", folder, "--bucket-mb", "1,5", "--latency", "50us")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "recorded  predicted step with"
    assert lines[1:3] == ["  buckets of 1.05 MB, 5.24 MB", "  latency +50us"]
    assert [line.split()[0] for line in lines[4:8]] == ["before", "after", "gain", "critical"]
    assert "90 % interval" in outcome.out
    assert lines[-1] == f"next: augury replay {folder}"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--bandwidth", "0x"],
        ["--bandwidth", "0Gbit/s"],
        ["--bandwidth", "fast"],
        ["--bandwidth", "-1x"],
        ["--bandwidth", ""],
        ["--bandwidth", "0.00000000000000000001x"],
        ["--latency", "soon"],
        ["--latency", "-50us"],
        ["--latency", "99999999999999999999x"],
        ["--latency", "99999999s"],
        ["--ranks", "0"],
        ["--ranks", "two"],
        ["--ranks", "999999999"],
        ["--bucket-mb", "0"],
        ["--bucket-mb", "1,,5"],
        ["--bucket-mb", "many"],
        ["--bucket-mb", "-1"],
        ["--compute-scale", "0"],
        ["--compute-scale", "nan"],
        ["--compute-scale", "inf"],
        ["--compute-scale", "-1"],
        ["--compute-scale", "slow"],
        ["--compute-scale", "7:1.5"],
        ["--compute-scale", "1-0:2"],
        ["--compute-scale", ":2"],
        ["--compute-scale", "0-99999999999:2"],
        ["--compute-scale", "999999"],
        ["--engine", "warp", "--no-straggler"],
        ["--max-bytes", "much", "--no-straggler"],
    ],
    ids=" ".join,
)
def test_bad_values_are_one_message(run: Runner, folder: Path, options: list[str]) -> None:
    outcome = run("whatif", folder, *options)
    assert outcome.code == 2, outcome
    assert one_message(outcome)
    assert "unexpected" not in outcome.err
    assert outcome.out == ""


def test_a_graph_is_accepted(run: Runner, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "run.augury"
    save_graph(build_recorded(RUN), path)
    for options in CHANGES.values():
        of_graph, of_run = asked(run, path, *options), asked(run, folder, *options)
        assert of_graph["predicted_step_ns"] == of_run["predicted_step_ns"]


def test_a_synthetic_run_is_changed_in_its_steady_state(run: Runner) -> None:
    assert run("synth", "-o", "s.augury", "--ranks", "4", "--layers", "4").code == 0
    assert asked(run, Path("s.augury"), "--bandwidth", "0.5x")["gain_pct"] < 0
    assert asked(run, Path("s.augury"), "--ranks", "6")["num_ranks"] == 6
    outcome = run("whatif", "s.augury", "--bucket-mb", "1")
    assert outcome.code == 3
    assert "which bucket" in outcome.err


def test_a_run_folder_of_raw_records_is_accepted(run: Runner, tmp_path: Path) -> None:
    folder = Run(tmp_path / "left").write()
    document = asked(run, folder, "--bucket-mb", "100", "--bandwidth", "0.5x")
    assert document["num_ranks"] == 2
    assert document["num_steps"] == 10  # two of the windows' twelve were disturbed


def test_engines_agree(run: Runner, folder: Path) -> None:
    native = asked(run, folder, "--ranks", "3")
    reference = asked(run, folder, "--ranks", "3", "--engine", "reference")
    assert native["predicted_step_ns"] == reference["predicted_step_ns"]


@pytest.mark.parametrize("path", ["missing.augury", "empty"])
def test_no_change_is_a_usage_error(run: Runner, tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    outcome = run("whatif", path, "--no-straggler")
    assert outcome.code == 3
    assert one_message(outcome)


def test_help_names_every_option(run: Runner) -> None:
    said = run("whatif", "--help").out
    for options in CHANGES.values():
        assert options[0] in said


def test_a_deadlock_caused_by_augury_is_a_defect(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in ("recorded", "recorded on devices"):
        save_graph(crossed(["AB", "BA"], source=source), tmp_path / "built.augury", force=True)
        built = run("replay", "built.augury")
        assert built.code == 1
        assert "the graph that Augury built from this run deadlocks: 'A'" in built.err
        assert "a defect of Augury, not of the program" in built.err
    save_graph(build_recorded(RUN), tmp_path / "recorded.augury")
    broken = unchanged(Scene(graph=crossed(["AB", "BA"]), costs={}))
    monkeypatch.setattr(changes, "apply_all", lambda *_: broken)
    changed = run("whatif", "recorded.augury", "--ranks", "4")
    assert changed.code == 1
    assert "the changed graph, which Augury made, deadlocks: 'A'" in changed.err
    assert "leave that change out" in changed.err
    save_graph(crossed(["AB", "BA"]), tmp_path / "own.augury")
    assert run("replay", "own.augury").code == 3
