"""A change as text: before, after, gain; control characters are escaped."""

from __future__ import annotations

import io

import msgspec
import pytest

from augury.core.results.replay import WhatIfResult
from augury.core.timeline import Timeline
from augury.core.units import format_count
from augury.predict.prediction import predict_step
from augury.predict.summarize import summarize_change
from augury.report.phrases import gain_words
from augury.report.whatif import render_change
from tests.report.conftest import HOSTILE_NAMES


def change(
    timeline: Timeline, *changes: str, interval_ns: tuple[int, int] | None = None
) -> WhatIfResult:
    prediction = msgspec.structs.replace(
        predict_step(timeline, None, baseline_ns=timeline.step_ns), interval_ns=interval_ns
    )
    return summarize_change(timeline, prediction, changes=list(changes))


def told(result: WhatIfResult, name: str = "run") -> str:
    file = io.StringIO()
    render_change(result, file, name=name)
    return file.getvalue()


def test_nothing_changed_gains_nothing(straggling: Timeline) -> None:
    result = change(straggling, "nothing")
    assert result.baseline_step_ns == result.predicted_step_ns == straggling.step_ns
    assert result.gain_pct == 0
    lines = told(result).splitlines()
    assert lines[:2] == ["run  predicted step with", "  nothing"]
    assert lines[5].split() == ["gain", "+0.0", "%"]


def test_the_interval_is_shown(straggling: Timeline) -> None:
    assert "interval" not in told(change(straggling, "a"))
    text = told(change(straggling, "a", interval_ns=(10_000_000, 30_000_000)))
    assert "90 % interval 10 ms to 30 ms" in text


def test_gain_is_counted_from_before(straggling: Timeline, one_link: Timeline) -> None:
    prediction = predict_step(one_link, None, baseline_ns=straggling.step_ns)
    result = summarize_change(one_link, prediction, changes=["a"])
    expected = 100 * (1 - one_link.step_ns / straggling.step_ns)
    assert result.gain_pct == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_hostile_names_are_escaped(hostile: Timeline, name: str) -> None:
    text = told(change(hostile, name), name=name)
    assert all(line.isprintable() for line in text.splitlines())
    assert "\x1b" not in text
    assert len(text) < 20_000


def test_large_losses_are_factors() -> None:
    assert gain_words(12) == "+12.0 %"
    assert gain_words(-8.46) == "-8.5 %"
    assert gain_words(-137.5) == "2.4x slower"


def test_counts_are_singular_or_plural() -> None:
    assert format_count(1, "rank") == "1 rank"
    assert format_count(1200, "rank") == "1,200 ranks"
    assert format_count(2, "match", "matches") == "2 matches"
