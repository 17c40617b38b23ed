"""A folder is read once, and again only when something in it is younger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from augury.core.errors import InputError
from augury.core.trace_file import RUN_FILE
from augury.ingest import open_run

from .written import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Run(tmp_path / "run").write()
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    return folder


def test_it_is_read_once(folder: Path):
    trace = open_run(folder)
    (folder / "rank-00000.0.trace.json.gz").unlink()
    assert open_run(folder) == trace


def test_a_younger_record_counts(folder: Path):
    before = open_run(folder)
    record = folder / "rank-00001.json"
    record.write_text(record.read_text().replace('"two"', '"three"'))
    later = (folder / RUN_FILE).stat().st_mtime_ns + 1
    os.utime(record, ns=(later, later))
    assert open_run(folder).ranks[1].host == "three" != before.ranks[1].host


def test_a_damaged_file_is_written_anew(folder: Path):
    trace = open_run(folder)
    (folder / RUN_FILE).write_text("{")
    assert open_run(folder) == trace
    assert (folder / RUN_FILE).stat().st_size > 100


def test_a_damaged_file_without_records_is_refused(folder: Path):
    open_run(folder)
    for path in folder.glob("rank-*"):
        path.unlink()
    assert len(open_run(folder).ranks) == 2
    (folder / RUN_FILE).write_text("{")
    with pytest.raises(InputError, match="damaged"):
        open_run(folder)


def test_what_is_no_folder(tmp_path: Path):
    with pytest.raises(InputError, match="not a run's folder"):
        open_run(tmp_path / "nothing")
