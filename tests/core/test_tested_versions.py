"""Versions in the package's extras, in the tests' environment and in the code are equal."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from augury.core.tested_versions import TESTED, is_tested

ROOT = Path(__file__).parents[2]


def test_the_extra_asks_for_the_tested_versions_of_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = project["optional-dependencies"]["torch"]
    first, last = TESTED["torch"][0], TESTED["torch"][-1]
    major, minor = last.split(".")
    assert wanted == f"torch>={first},<{major}.{int(minor) + 1}"


def test_the_tests_run_with_a_tested_version():
    (pinned,) = re.findall(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert is_tested("torch", pinned)


@pytest.mark.parametrize(
    ("version", "is_one"),
    [
        ("2.13.0", True),
        ("2.13.1+cu130", True),
        ("2.13", True),
        ("2.1.0", False),
        ("2.130.0", False),
        ("2.14.0a0+git1", False),
        ("3.13.0", False),
        ("", False),
    ],
)
def test_versions_count_by_their_first_two_numbers(version: str, is_one: bool):
    assert is_tested("torch", version) is is_one
