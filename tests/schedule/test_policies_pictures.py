"""The pictures in the documentation are what the policies really do."""

from __future__ import annotations

import re

import pytest

from augury.schedule.evaluate import step_ns
from augury.schedule.policies.baselines import RIVALS
from augury.schedule.policies.registry import find_policy
from tests.schedule.pictures import DOCUMENT, EXAMPLE, MS, illustrated

TEXT = DOCUMENT.read_text("utf-8")


def test_the_document_shows_what_published_policies_do():
    assert illustrated(TEXT, RIVALS) == TEXT, "python -m tests.schedule.pictures draws them anew"


def test_the_document_says_what_ours_comes_to():
    """Its search may find another order that is as good."""
    ours = find_policy("augury")
    said = re.search(r"^augury: \d+ messages, step ([\d.]+) ms", TEXT, re.MULTILINE)
    assert said is not None
    assert float(said[1]) == pytest.approx(step_ns(EXAMPLE, ours.compile(EXAMPLE)) / MS, rel=0.005)
