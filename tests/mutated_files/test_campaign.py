"""Mutated files are read or refused; the campaign notices exceptions, crashes, hangs and memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutated_files.campaign import FileTally, load_tally, run_campaign, save_tally
from tests.mutated_files.campaign import digest_of_sources as digest

FAULTY = "tests.mutated_files.faulty_readers"


@pytest.mark.parametrize("first_seed", [0, 1000])
def test_mutated_files_are_read_or_refused(first_seed: int):
    """Two thousand of the files of `make soak PART=files`."""
    tally = FileTally(first_seed=first_seed, next_seed=first_seed)
    run_campaign(tally, first_seed + 1000, jobs=1)
    assert tally.files == 1000
    assert [(one["seed"], one["reader"], one["report"]) for one in tally.reports] == []
    assert tally.seeds == []
    assert tally.read > 50
    assert tally.refused > 200


def test_every_kind_of_failure_is_noticed_and_the_rest_is_still_read():
    tally = FileTally()
    run_campaign(tally, 60, jobs=1, registry=FAULTY, hang_s=0.5)
    assert (tally.files, tally.next_seed) == (60, 60)
    reports = Counter(report["report"].strip().splitlines()[-1] for report in tally.reports)
    assert reports["KeyError: 'not caught'"] > 0
    assert reports["MemoryError"] > 0
    assert reports["the process ended with 3"] > 0
    assert tally.hangs > 0
    assert tally.failures + tally.hangs == len(tally.seeds) == len(tally.reports)
    assert tally.seeds == sorted(tally.seeds)
    assert tally.files == tally.read + tally.refused + len(tally.seeds)


def test_a_campaign_continues_where_it_ended(tmp_path: Path):
    whole, first = FileTally(), FileTally(sources=digest())
    run_campaign(whole, 40, jobs=2, registry=FAULTY, hang_s=0.5)
    run_campaign(first, 25, jobs=1, registry=FAULTY, hang_s=0.5)
    save_tally(first, tmp_path / "tally.json")
    again = load_tally(tmp_path / "tally.json")
    assert again is not None
    run_campaign(again, 40, jobs=1, registry=FAULTY, hang_s=0.5)
    assert again.seeds == whole.seeds
    assert (again.files, again.hangs, again.failures) == (40, whole.hangs, whole.failures)
    other = FileTally(sources="of other code")
    save_tally(other, tmp_path / "tally.json")
    assert load_tally(tmp_path / "tally.json") is None
