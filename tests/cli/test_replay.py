import json
from pathlib import Path

import polars as pl

from tests.cli.conftest import Runner

DOCUMENTED = {
    "schema_version": int,
    "num_ranks": int,
    "num_servers": int,
    "num_ops": int,
    "num_steps": int,
    "num_simulated_ops": int,
    "measured_step_ns": int,
    "predicted_step_ns": int,
    "interval_ns": type(None),
    "error_pct": float,
    "unexplained_pct": float,
    "ranks": list,
    "resources": list,
    "critical_path": list,
    "critical_path_summary": dict,
    "ledger": list,
}
RANK_KEYS = {
    "rank",
    "role",
    "host",
    "measured_step_ns",
    "predicted_step_ns",
    "error_pct",
    "peak_memory_bytes",
    "peak_memory_holders",
}
SEGMENT_KEYS = {
    "op",
    "rank",
    "name",
    "kind",
    "layer",
    "resource",
    "start_ns",
    "dur_ns",
    "reason",
}


def test_the_step_and_the_next_command_are_printed(run: Runner, graph_path: Path) -> None:
    outcome = run("replay", graph_path)
    assert outcome.code == 0
    assert "predicted 2.5 ms" in outcome.out
    assert "measured 2.6 ms" in outcome.out
    assert f"next: augury report {graph_path} -o report.html" in outcome.out
    assert outcome.err == ""


def test_json_has_the_documented_fields(run: Runner, graph_path: Path) -> None:
    outcome = run("replay", graph_path, "--json")
    document = json.loads(outcome.out)
    for key, kind in DOCUMENTED.items():
        assert isinstance(document[key], kind), key
    assert document["schema_version"] == 1
    assert document["error_pct"] == round(100 * (2.5 - 2.6) / 2.6, 4)
    assert set(document["ranks"][0]) >= RANK_KEYS
    assert set(document["critical_path"][0]) >= SEGMENT_KEYS
    assert set(document["resources"][0]) >= {"name", "rank", "kind", "busy_pct", "idle_pct"}
    assert set(document["critical_path_summary"]) >= {"by_kind", "by_reason"}


def test_engines_agree(run: Runner, graph_path: Path) -> None:
    default = run("replay", graph_path, "--json")
    reference = run("replay", graph_path, "--json", "--engine", "reference", "--no-fold")
    assert json.loads(default.out)["critical_path"] == json.loads(reference.out)["critical_path"]


def test_optional_files_are_written(run: Runner, graph_path: Path, tmp_path: Path) -> None:
    outcome = run("replay", graph_path, "--timeline", "t.json.gz", "--table", "t.parquet")
    assert outcome.code == 0
    assert "ui.perfetto.dev" in outcome.out
    assert pl.read_parquet(tmp_path / "t.parquet").height == 4
    assert (tmp_path / "t.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_refuses_to_overwrite_before_it_works(
    run: Runner, graph_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.json").write_text("mine")
    outcome = run("replay", graph_path, "--timeline", "t.json")
    assert outcome.code == 2
    assert outcome.err == "augury: error: t.json exists\n  remedy: add --force to replace it\n"
    assert outcome.out == ""
    assert run("replay", graph_path, "--timeline", "t.json", "--force").code == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_cap_on_memory(run: Runner, graph_path: Path) -> None:
    outcome = run("replay", graph_path, "--max-bytes", "100B")
    assert outcome.code == 3
    assert "--max-bytes" in outcome.err
    assert run("replay", graph_path, "--max-bytes", "much").code == 2
