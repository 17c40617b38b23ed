"""Rendering of recorded TCP traffic."""

from __future__ import annotations

from augury.report.wire_terminal import sparkline


def test_the_height_of_a_sparkline_is_the_utilization() -> None:
    assert sparkline([0, 50, 100, 400, -3]) == " ▄██ "
