"""``augury import``: runs that need no import are refused with the next command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Runner
from tests.cli.test_main import one_message
from tests.ingest.written import Run, write_trace_file


@pytest.mark.parametrize("given", ["run", "run/rank-00001.json"])
def test_importing_a_recorded_run_points_to_replay(run: Runner, tmp_path: Path, given: str) -> None:
    Run(tmp_path / "run").write()
    outcome = run("import", given, "-o", "imported")
    assert outcome.code == 2
    assert one_message(outcome)
    assert "augury replay run\n" in outcome.err
    assert not (tmp_path / "imported").exists()


def test_importing_an_imported_run_points_to_replay(run: Runner, tmp_path: Path) -> None:
    folder = Run(tmp_path / "run").write()
    for record in folder.glob("rank-?????.json"):
        record.unlink()
    traces = sorted(folder.glob("*.0.trace.json.gz"))
    assert run("import", *traces, "-o", "imported").code == 0
    outcome = run("import", "imported", "-o", "again")
    assert outcome.code == 2
    assert "augury replay imported\n" in outcome.err


def test_a_trace_may_have_the_name_of_a_record(run: Runner, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    write_trace_file(tmp_path / "rank-00000.json", [event])
    outcome = run("import", "rank-00000.json", "-o", "imported")
    assert outcome.code == 0, outcome.err


def test_the_total_size_of_traces_is_limited(run: Runner, tmp_path: Path) -> None:
    folder = Run(tmp_path / "run").write()
    traces = sorted(folder.glob("*.0.trace.json.gz"))
    outcome = run("import", *traces, "-o", "imported", "--max-bytes", "4kB")
    assert outcome.code == 3
    assert one_message(outcome)
    assert "--max-bytes" in outcome.err
    assert not (tmp_path / "imported").exists()
