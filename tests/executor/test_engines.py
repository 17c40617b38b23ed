"""Imports, sweeps and fits give the same bytes in processes, in threads and in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.wide_work import fit, import_traces, sweep, write_traces

SERIAL = ("--engine", "serial")
WIDE = [("--engine", "processes", "--jobs", "2"), ("--engine", "threads", "--jobs", "3")]


@pytest.mark.parametrize("engine", WIDE, ids=["processes", "threads"])
def test_an_import_writes_the_same_files(tmp_path: Path, engine: tuple[str, ...]):
    traces = write_traces(tmp_path / "traces", 5)
    expected = import_traces(traces, tmp_path / "serial", *SERIAL)
    assert len(expected[1]) > 3
    assert import_traces(traces, tmp_path / "wide", *engine) == expected


def test_a_sweep_prints_the_same_result(tmp_path: Path):
    expected = sweep(tmp_path, *SERIAL)
    assert '"fidelity": "replay"' in expected
    assert sweep(tmp_path, *WIDE[0]) == expected


@pytest.mark.more
def test_fits_of_held_out_rows_print_the_same_result():
    expected = fit(*SERIAL)
    assert '"held_out"' in expected
    assert fit(*WIDE[0]) == expected


def test_a_damaged_trace_is_named_by_the_worker_that_read_it(tmp_path: Path):
    traces = write_traces(tmp_path / "traces", 4)
    traces[2].write_bytes(traces[2].read_bytes()[:100])
    with pytest.raises(AssertionError, match=r"augury: error: .*rank-00002.* is truncated"):
        import_traces(traces, tmp_path / "wide", *WIDE[0])
