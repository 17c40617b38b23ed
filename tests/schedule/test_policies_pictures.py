"""The pictures in the documentation are what the policies really do."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.schedule.bound import lower_bound
from augury.schedule.policies import POLICIES
from augury.schedule.policy import Policy
from tests.schedule.pictures import EXAMPLE, MS, picture

DOCUMENT = (Path(__file__).parents[2] / "docs/scheduling.md").read_text("utf-8")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_document_shows_what_the_policy_does(policy: Policy):
    assert f"### `{policy.name}`\n" in DOCUMENT
    assert f"```\n{picture(policy)}\n```" in DOCUMENT


def test_the_document_says_the_bound():
    assert f"faster than {lower_bound(EXAMPLE) / MS:.1f} ms" in DOCUMENT
