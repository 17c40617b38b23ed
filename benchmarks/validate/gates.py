"""What has to hold of all rows and checks together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.validate.checks import Check
from benchmarks.validate.rows import Row


def broken(rows: Sequence[Row], checks: Sequence[Check], summary: dict[str, Any]) -> list[str]:
    """In words; empty is good."""
    found = [*_of_replay(rows, summary.get("replay")), *_of_whatif(summary.get("whatif"))]
    return [*found, *(f"check {check.case} does not hold" for check in checks if not check.holds)]


def _of_replay(rows: Sequence[Row], found: dict[str, Any] | None) -> Iterator[str]:
    if found is None:
        return
    if found["within"] < found["cases"]:
        yield f"{found['cases'] - found['within']} replays are not within max(5 %, 2 x noise)"
    if (found["median_error_pct"] or 0) > 2:
        yield "replay: the median error is above 2 %"
    unexplained = [row.case for row in rows if (row.unexplained_pct or 0) > 3]
    if unexplained:
        yield f"more than 3 % is unexplained in {', '.join(unexplained)}"


def _of_whatif(found: dict[str, Any] | None) -> Iterator[str]:
    if found is None:
        return
    if found["within"] < 0.95 * found["cases"]:
        yield "fewer than 95 % of the what-ifs are within max(5 %, 2 x noise)"
    if found["within_10_pct"] < found["cases"]:
        yield f"{found['cases'] - found['within_10_pct']} what-ifs are not within 10 %"
    if found["covered"] < 0.85 * found["cases"]:
        yield "fewer than 85 % of the what-ifs' intervals cover what was measured"
    if (found["median_half_width_pct"] or 0) > 6:
        yield "the intervals' median half width is above 6 %"
