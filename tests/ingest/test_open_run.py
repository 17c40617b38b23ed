"""A run folder is read once, and again only if the digests of its files change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from augury.core.errors import InputError, LimitError
from augury.core.trace.trace_file import RUN_FILE
from augury.ingest import open_run

from .written import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Run(tmp_path / "run").write()
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    return folder


def test_files_are_read_once(folder: Path):
    trace = open_run(folder)
    written = (folder / RUN_FILE).stat().st_ino
    later = (folder / RUN_FILE).stat().st_mtime + 10
    for path in folder.glob("rank-*"):
        os.utime(path, (later, later))
    assert open_run(folder) == trace
    assert (folder / RUN_FILE).stat().st_ino == written


def test_a_changed_record_is_read_again_whatever_its_date(folder: Path):
    before = open_run(folder)
    record = folder / "rank-00001.json"
    record.write_text(record.read_text().replace('"two"', '"six"'))
    os.utime(record, (1, 1))
    assert open_run(folder).ranks[1].host == "six" != before.ranks[1].host


def test_a_deleted_file_is_noticed(folder: Path):
    open_run(folder)
    (folder / "rank-00000.0.trace.json.gz").unlink()
    assert "unreadable-trace" in open_run(folder).ledger
    (folder / "rank-00001.json").unlink()
    trace = open_run(folder)
    assert [facts.rank for facts in trace.ranks] == [0]
    assert trace.ledger["missing-rank"].example == "rank 1"


def test_missing_files_of_all_ranks_are_noted(folder: Path):
    before = open_run(folder)
    for path in folder.glob("rank-*"):
        path.unlink()
    trace = open_run(folder)
    assert trace.ledger["rank-files-gone"].count > 0
    assert len(trace.events) == len(before.events)


def test_the_size_of_the_cache_is_limited(folder: Path):
    open_run(folder)
    for path in folder.glob("rank-*"):
        path.unlink()
    with pytest.raises(LimitError, match="more than the cap"):
        open_run(folder, max_bytes=1000)


def test_the_total_size_of_files_is_limited(folder: Path):
    sizes = [path.stat().st_size for path in folder.iterdir()]
    with pytest.raises(LimitError, match="more than the limit"):
        open_run(folder, max_bytes=sum(sizes) - 1)
    # Each unpacks to far less than this, all of them to more.
    with pytest.raises(LimitError, match="unpacks to more than the limit"):
        open_run(folder, max_bytes=sum(sizes) + max(sizes))
    assert len(open_run(folder, max_bytes=1 << 30).ranks) == 2


def test_a_damaged_cache_is_rewritten(folder: Path):
    trace = open_run(folder)
    (folder / RUN_FILE).write_text("{")
    assert open_run(folder) == trace
    assert (folder / RUN_FILE).stat().st_size > 100


def test_a_damaged_cache_without_records_is_refused(folder: Path):
    open_run(folder)
    for path in folder.glob("rank-*"):
        path.unlink()
    assert len(open_run(folder).ranks) == 2
    (folder / RUN_FILE).write_text("{")
    with pytest.raises(InputError, match="damaged"):
        open_run(folder)


def test_a_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="not a run folder"):
        open_run(tmp_path / "nothing")


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    (tmp_path / "train.py").touch()
    with pytest.raises(InputError, match="contains no run") as caught:
        open_run(tmp_path)
    assert "`augury run`" in caught.value.remedy
