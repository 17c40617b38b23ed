"""``replay --fine`` and the changes that need it, on a real job of two ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import wire_recorder  # noqa: F401
from tests.cli.conftest import Runner
from tests.cli.test_main import one_message
from tests.golden.expected import RUNS
from tests.ingest.test_wire_real import recorded_wire

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory,
    wire_recorder: Path,  # noqa: ARG001, F811
) -> Path:
    return recorded_wire(tmp_path_factory, num_ranks=2)


def asked(run: Runner, *words: str | Path) -> dict[str, Any]:
    outcome = run(*words, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


@pytest.mark.more
def test_a_fine_replay_has_links(run: Runner, recorded: Path) -> None:
    coarse, fine = asked(run, "replay", recorded), asked(run, "replay", recorded, "--fine")
    assert fine["measured_step_ns"] == coarse["measured_step_ns"]
    kinds = {resource["kind"] for resource in fine["resources"]}
    assert {"link_out", "link_in"} <= kinds
    assert "link_out" not in {resource["kind"] for resource in coarse["resources"]}


def test_a_fine_replay_is_near_the_coarse_one(run: Runner, tmp_path: Path) -> None:
    # Links overlap what collectives as a whole do not: exact where they come one by one
    # (tests/passes/test_expand.py), near to it where two run at once on busy cores. A recording
    # that is kept: how busy the cores are would decide about a new one.
    kept = shutil.copytree(RUNS / "buckets-3", tmp_path / "run")
    coarse, fine = asked(run, "replay", kept), asked(run, "replay", kept, "--fine")
    assert fine["predicted_step_ns"] == pytest.approx(coarse["predicted_step_ns"], rel=0.1)
    assert fine["measured_step_ns"] == coarse["measured_step_ns"]


def test_sends_and_receives_are_on_the_timeline(
    run: Runner, recorded: Path, tmp_path: Path
) -> None:
    target = tmp_path / "fine.json"
    outcome = run("replay", recorded, "--fine", "--timeline", target)
    assert outcome.code == 0, outcome.err
    events = json.loads(target.read_text())["traceEvents"]
    assert {"send", "recv"} <= {event.get("cat") for event in events}


LINKS = {
    "slow link": ["--link-bandwidth", "1:0.1x"],
    "one way": ["--link-bandwidth", "1.out:0.1x"],
    "all links": ["--fine", "--bandwidth", "0.1x"],
    "latency": ["--fine", "--latency", "+5ms"],
    "half duplex": ["--half-duplex"],
    "fast link": ["--link-bandwidth", "0:8x"],
    "tree": ["--algorithm", "tree"],
    "halving": ["--algorithm", "halving-doubling"],
    "order": ["--ring-order", "1,0"],
    "buckets": ["--fine", "--bucket-mb", "25"],
    "ranks": ["--fine", "--ranks", "4"],
}


@pytest.mark.more
def test_changes_of_single_links_are_predicted(run: Runner, recorded: Path) -> None:
    gains = {
        name: asked(run, "whatif", recorded, *words)["gain_pct"] for name, words in LINKS.items()
    }
    assert gains["all links"] == pytest.approx(gains["slow link"], abs=1.0)
    assert gains["slow link"] < -10
    assert gains["one way"] < -10
    assert gains["latency"] < -10
    assert gains["half duplex"] < 0 <= gains["fast link"]
    assert gains["order"] == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--link-bandwidth", "7:0.5x"], "no rank 7"),
        (["--link-bandwidth", "one:0.5x"], "names no link"),
        (["--link-bandwidth", "1.up:0.5x"], "names no link"),
        (["--link-bandwidth", "1:0x"], "bandwidth must be positive"),
        (["--algorithm", "magic"], "no algorithm 'magic'"),
        (["--ring-order", "0,0"], "no order of the ranks"),
        (["--ring-order", "a"], "no order of ranks"),
        (["--fine"], "no change is named"),
    ],
)
def test_impossible_changes_are_usage_errors(
    run: Runner, recorded: Path, words: list[str], cause: str
) -> None:
    outcome = run("whatif", recorded, *words)
    assert outcome.code == 2
    assert one_message(outcome)
    assert cause in outcome.err


def test_a_run_without_wire_is_refused(run: Runner, recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "coarse"
    folder.mkdir()
    for path in recorded.glob("rank-*"):
        if ".wire-" not in path.name:
            (folder / path.name).write_bytes(path.read_bytes())
    outcome = run("replay", folder, "--fine")
    assert outcome.code == 3
    assert one_message(outcome)
    assert "--wire" in outcome.err
