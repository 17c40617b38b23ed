"""Rendering of recorded TCP traffic."""

from __future__ import annotations

from augury.report.wire_terminal import sparkline


def test_a_sparkline_is_as_high_as_it_is_busy() -> None:
    assert sparkline([0, 50, 100, 400, -3]) == " ▄██ "
