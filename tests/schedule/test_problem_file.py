"""Problem files: round trip, and refusal of invalid content."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings

from augury.core.errors import FileFormatError, InputError
from augury.core.plan.problem import Problem
from augury.schedule.problem_file import (
    Stated,
    decode_problem,
    encode_problem,
    load_problem,
    save_problem,
)
from tests.schedule.problems import problems

DOCUMENT = Path(__file__).parents[2] / "docs/cli.md"


@settings(max_examples=40)
@given(problems())
def test_a_problem_file_round_trips(problem: Problem) -> None:
    stated = Stated(problem=problem, num_ranks=4)
    assert decode_problem(encode_problem(stated)) == stated


def documented() -> dict[str, object]:
    text = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    found: dict[str, object] = next(
        document for document in map(json.loads, text) if document.get("kind") == "augury-problem"
    )
    return found


def test_the_documented_problem_loads(tmp_path: Path) -> None:
    (tmp_path / "problem.json").write_text(json.dumps(documented()))
    stated = load_problem(tmp_path / "problem.json")
    assert stated.num_ranks == 2
    assert len(stated.problem.gradients) == 2
    save_problem(stated, tmp_path / "again.json")
    assert load_problem(tmp_path / "again.json") == stated


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "augury-plan"}, "not a scheduling problem"),
        ({"schema_version": 2}, "schema version 2"),
        ({"num_ranks": 0}, "0 ranks"),
        ({"num_ranks": "two"}, "not a scheduling problem"),
        ({"problem": {"gradients": []}}, "not a scheduling problem"),
        ({"problem": None}, "not a scheduling problem"),
    ],
)
def test_invalid_fields_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        decode_problem(json.dumps(documented() | changes).encode())


def test_files_without_a_problem_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"[]", b"{", b"\xff\xfe", b'{"a": "\xff"}', b"[" * 100_000):
        with pytest.raises(FileFormatError):
            decode_problem(content)
    with pytest.raises(InputError, match="cannot read"):
        load_problem(tmp_path / "missing.json")
