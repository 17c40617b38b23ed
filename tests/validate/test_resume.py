"""A suite continues where it stopped, and replaces its own rows only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.validate.__main__ import main
from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates
from benchmarks.validate.job import JobError
from benchmarks.validate.progress import Progress
from benchmarks.validate.revision import Revision, current_revision
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import Suite, is_recorded, is_wanted
from benchmarks.validate.suites import SUITES

FIRST = Revision(commit="1" * 40)
SECOND = Revision(commit="2" * 40)


class Bench:
    """A suite whose jobs only note that they ran."""

    def __init__(self, name: str) -> None:
        self.ran: list[str] = []
        self.fails: set[str] = set()
        self.suite = Suite(
            name=name,
            settings=tuple(Setting(name=case, model="last", mbit=None) for case in ("a", "b", "c")),
            rows=self._rows,
            checks=self._checks,
            gates=Gates(),
            quick=("b",),
            record=self._record,
        )

    def _record(self, setting: Setting, folder: Path) -> None:
        self.ran.append(setting.name)
        if setting.name in self.fails:
            raise JobError("the job made no progress")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "setting.json").write_text("{}")

    def _rows(self, settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
        for setting in settings:
            if is_recorded(setting, folder) and is_wanted(setting.name, only):
                yield Row(
                    suite=self.suite.name,
                    case=setting.name,
                    kind="replay",
                    measured_ns=100,
                    predicted_ns=101,
                    interval_ns=(95, 105),
                    noise_pct=0.5,
                )

    def _checks(self, rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
        if only is None:
            yield from progress.checks("all", lambda: self._check(len(rows)))

    def _check(self, num: int) -> Iterator[Check]:
        self.ran.append("check")
        yield Check(suite=self.suite.name, case="all", kind="cost", value=num, unit="", at_most=9.0)


@pytest.fixture
def one() -> Bench:
    return Bench("one")


def validate(tmp_path: Path, bench: Bench, *words: str, revision: Revision = FIRST) -> int:
    places = ("--folder", str(tmp_path / "saved"), "--out", str(tmp_path / "validate.json"))
    return main([*words, *places], [bench.suite], revision)


def document(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "validate.json").read_text())
    return found


def commits(tmp_path: Path) -> dict[str, str]:
    return {f"{row['suite']}/{row['case']}": row["commit"] for row in document(tmp_path)["rows"]}


def test_cases_done_at_a_commit_are_not_measured_again(tmp_path: Path, one: Bench) -> None:
    assert validate(tmp_path, one) == 0
    assert one.ran == ["a", "b", "c", "check"]
    assert validate(tmp_path, one) == 0
    assert one.ran == ["a", "b", "c", "check"]
    assert len(document(tmp_path)["rows"]) == 3
    validate(tmp_path, one, revision=SECOND)
    assert one.ran == ["a", "b", "c", "check"] * 2
    assert set(commits(tmp_path).values()) == {SECOND.commit}


def test_fresh_measures_everything_again(tmp_path: Path, one: Bench) -> None:
    validate(tmp_path, one)
    validate(tmp_path, one, "--fresh")
    assert one.ran == ["a", "b", "c", "check"] * 2


def test_a_run_continues_with_what_failed(tmp_path: Path, one: Bench) -> None:
    one.fails = {"b"}
    assert validate(tmp_path, one) == 1
    assert [row["case"] for row in document(tmp_path)["rows"]] == ["a", "c"]
    assert "b: the job made no progress" in document(tmp_path)["troubles"][0]
    one.fails = set()
    assert validate(tmp_path, one) == 0
    assert one.ran == ["a", "b", "c", "check", "b"]
    assert document(tmp_path)["troubles"] == []


def test_nothing_starts_when_no_time_is_left(
    tmp_path: Path, one: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(tmp_path, one, "--minutes", "0.0000001") == 1
    assert one.ran == []
    assert "run the same command again to continue" in capsys.readouterr().err
    assert validate(tmp_path, one) == 0
    assert one.ran == ["a", "b", "c", "check"]


def test_a_suite_replaces_its_own_rows_only(tmp_path: Path, one: Bench) -> None:
    two = Bench("two")
    validate(tmp_path, one)
    validate(tmp_path, two)
    validate(tmp_path, one, revision=SECOND)
    found = commits(tmp_path)
    assert {found[f"one/{case}"] for case in "abc"} == {SECOND.commit}
    assert {found[f"two/{case}"] for case in "abc"} == {FIRST.commit}
    assert set(document(tmp_path)["summary"]) == {"one", "two"}
    assert {check["suite"] for check in document(tmp_path)["checks"]} == {"one", "two"}


def test_single_cases_replace_single_rows(tmp_path: Path, one: Bench) -> None:
    validate(tmp_path, one)
    validate(tmp_path, one, "--only", "b,x*", revision=SECOND)
    assert commits(tmp_path) == {
        "one/a": FIRST.commit,
        "one/b": SECOND.commit,
        "one/c": FIRST.commit,
    }
    assert document(tmp_path)["summary"]["one"]["replay"]["cases"] == 3
    (check,) = document(tmp_path)["checks"]
    assert (check["value"], check["commit"]) == (3, FIRST.commit)


def test_rows_have_the_commits_of_measurement_and_prediction(tmp_path: Path, one: Bench) -> None:
    validate(tmp_path, one)
    validate(tmp_path, one, "--predict-only", revision=SECOND)
    assert one.ran == ["a", "b", "c", "check"]
    row = document(tmp_path)["rows"][0]
    assert (row["commit"], row["measured_commit"]) == (SECOND.commit, FIRST.commit)


def test_quick_runs_the_named_cases(tmp_path: Path, one: Bench) -> None:
    assert validate(tmp_path, one, "--quick") == 0
    assert one.ran == ["b"]


def test_every_suite_names_quick_cases() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)
    for suite in SUITES:
        names = [setting.name for setting in suite.settings]
        assert any(is_wanted(name, ",".join(suite.quick)) for name in names)


def test_a_changed_file_is_another_revision(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, "-C", str(tmp_path), *words], check=True, capture_output=True)

    assert current_revision.__wrapped__(tmp_path / "nowhere").commit is None
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    clean = current_revision.__wrapped__(tmp_path)
    assert clean.commit is not None
    assert not clean.is_dirty
    assert clean.is_same_code(current_revision.__wrapped__(tmp_path))
    (tmp_path / "README.md").write_text("read me")
    git("add", ".")
    git("commit", "-m", "Say more")
    assert current_revision.__wrapped__(tmp_path).commit != clean.commit
    assert clean.is_same_code(current_revision.__wrapped__(tmp_path))
    (tmp_path / "src" / "a.py").write_text("2")
    changed = current_revision.__wrapped__(tmp_path)
    assert changed.is_dirty
    assert not changed.is_same_code(clean)
    (tmp_path / "src" / "b.py").write_text("3")
    assert not current_revision.__wrapped__(tmp_path).is_same_code(changed)
    assert not Revision(commit=None).is_same_code(Revision(commit=None))
