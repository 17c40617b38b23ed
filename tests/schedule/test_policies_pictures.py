"""The pictures in the documentation match the present orders of the policies."""

from __future__ import annotations

import re

import pytest

from augury.schedule.evaluate import step_ns
from augury.schedule.policies.baselines import RIVALS
from augury.schedule.policies.registry import find_policy
from tests.schedule.pictures import DOCUMENT, EXAMPLE, MS, illustrated

TEXT = DOCUMENT.read_text("utf-8")


def test_pictures_in_the_document_match_the_published_policies():
    assert illustrated(TEXT, RIVALS) == TEXT, "python -m tests.schedule.pictures draws them anew"


def test_the_step_in_the_document_matches_our_policy():
    """The search may find another order that is as good."""
    ours = find_policy("augury")
    said = re.search(r"^augury: \d+ messages, step ([\d.]+) ms", TEXT, re.MULTILINE)
    assert said is not None
    assert float(said[1]) == pytest.approx(step_ns(EXAMPLE, ours.compile(EXAMPLE)) / MS, rel=0.005)
