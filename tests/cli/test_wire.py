"""``augury wire``: the traffic of a job as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from augury.ingest.wire.attribution.gloo_messages import all_reduce_lengths
from tests.ingest.wire_written import Talk, Written, connection, event

SIZES = (10_000_000, 4_004, 2_500_000)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks and three all-reduces."""
    talk = Talk()
    for size in SIZES:
        both = [all_reduce_lengths(size, 2, rank).tolist() for rank in (0, 1)]
        for turn in range(max(map(len, both))):
            for rank in (0, 1):
                if turn < len(both[rank]):
                    talk.send_framed(rank, both[rank][turn])
        talk.now += 10_000_000
    folder = tmp_path / "job"
    folder.mkdir()
    return talk.write(folder, packed=True)


def test_the_terminal_output_has_all_parts(run, job: Path):
    outcome = run("wire", job)
    assert outcome.code == 0, outcome.err
    assert "2 ranks, 1 connection," in outcome.out
    assert "100.00 % of it attributed" in outcome.out
    assert "sent = received on 1 of 1 connection" in outcome.out
    assert "all_reduce  ring" in outcome.out
    assert "25 MB" in outcome.out


def test_json_has_all_parts(run, job: Path):
    outcome = run("wire", job, "--json")
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    assert told["schema_version"] == 1
    assert told["attributed_pct"] == 100
    assert told["payload_bytes"] == 2 * sum(SIZES)
    (rings,) = told["collectives"]
    assert rings["algorithm"] == "ring"
    assert rings["count"] == rings["num_exact"] == 3
    assert rings["payload_bytes"] == rings["expected_bytes"] == 2 * sum(SIZES)
    assert [(link["src"], link["dst"]) for link in told["links"]] == [(0, 1), (1, 0)]
    for link in told["links"]:
        assert link["attributed_bytes"] == link["payload_bytes"]
        assert link["shortest_delay_ns"] > 0
        assert link["rate_bytes_per_s"] > 0
        assert link["refused_pct"] == 0
    (ends,) = told["connections"]
    assert (ends["sent_a"], ends["sent_b"]) == (ends["received_b"], ends["received_a"])


def test_every_field_is_documented(run, job: Path):
    told = json.loads(run("wire", job, "--json").out)
    documented = (Path(__file__).parents[2] / "docs/cli.md").read_text("utf-8")
    for name, value in told.items():
        assert f"`{name}`" in documented
        for inner in value[0] if isinstance(value, list) and value else ():
            assert f"`{inner}`" in documented, f"{name}.{inner}"


def test_names_from_files_do_not_reach_the_terminal(run, tmp_path: Path):
    wicked = "\x1b]0;gotcha\x07"
    Written(
        host=wicked,
        connections=[connection(("10.0.0.1", 1), ("10.0.0.2", 2))],
        events=[event(1, start=5, end=4, asked=1, done=1)],
    ).write(tmp_path)
    outcome = run("wire", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "\x1b" not in outcome.out
    assert "impossible" in outcome.out
    assert "\\u001b" in run("wire", tmp_path, "--json").out


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_runs_without_wire_are_refused(run, tmp_path: Path, what: str):
    (tmp_path / "file").write_text("no")
    (tmp_path / "empty").mkdir()
    outcome = run("wire", tmp_path / what)
    assert outcome.code == 3
    assert "--wire" in outcome.err
