"""Renders the rows for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from augury.report.console import columns, make_console
from augury.report.safe_text import safe
from benchmarks.validate.checks import Check
from benchmarks.validate.rows import Row

MIN_WIDTH = 140


def show(rows: Sequence[Row], checks: Sequence[Check], summary: dict[str, Any]) -> None:
    console = make_console(sys.stdout)
    console.width = max(console.width, MIN_WIDTH)
    table = columns(
        "case", "kind", ">measured", ">predicted", ">error", ">noise", ">interval", ">unexpl.",
        ">cost", "~",
    )  # fmt: skip
    for row in rows:
        mark = "" if row.is_within else row.trouble or "" if row.error_pct is None else "MISS"
        if row.is_undecided:
            mark = "undecided: noise"
        elif row.is_covered is False:
            mark = f"{mark} outside".strip()
        table.add_row(
            row.case,
            row.kind,
            _amount(row.measured_ns, row.measured_bytes),
            _amount(row.predicted_ns, row.predicted_bytes),
            _pct(row.error_pct, "+"),
            _pct(row.noise_pct),
            f"±{row.half_width_pct:.1f}%" if row.half_width_pct is not None else "",
            _pct(row.unexplained_pct),
            _pct(row.recording_cost_pct, "+"),
            safe(mark, max_chars=120),
        )
    console.print(table)
    if checks:
        console.print(_table_of(checks))
    undecided = sum(check.holds is None for check in checks)
    if undecided:
        console.print(f"checks: {undecided} of {len(checks)} undecided: noise exceeds the bound")
    for kind, found in summary.items():
        console.print(
            f"{kind}: {found['decided_within']} of {found['decided']} within max(5 %, 2 x noise)"
            f" and {found['cases'] - found['decided']} undecided,"
            f" median {found['median_error_pct']} %, worst {found['worst_error_pct']} %,"
            f" intervals cover {found['covered']} of {found['with_interval']}"
            f" at a median half width of {found['median_half_width_pct']} %"
        )


def _table_of(checks: Sequence[Check]) -> Table:
    table = columns("check", "kind", ">value", ">at most", ">noise", "~")
    for check in checks:
        value = "" if check.value is None else f"{check.value:g} {check.unit}"
        noise = "" if check.noise is None else f"{check.noise:g} {check.unit}"
        mark = "" if check.holds else f"MISS {check.trouble or ''}"
        mark = "undecided: noise" if check.holds is None else mark
        bound = f"{check.at_most:g} {check.unit}"
        table.add_row(check.case, check.kind, value, bound, noise, safe(mark, max_chars=120))
    return table


def _amount(dur_ns: int | None, size_bytes: int | None) -> str:
    if dur_ns is not None:
        return f"{dur_ns / 1e6:.1f} ms"
    return "" if size_bytes is None else f"{size_bytes / 1e6:.1f} MB"


def _pct(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.1f}%"
