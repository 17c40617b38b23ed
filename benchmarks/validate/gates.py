"""Gates over all rows and checks of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.validate.checks import Check
from benchmarks.validate.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledGates:
    """Bounds over the rows of all kinds together."""

    within: float
    """Smallest share of the decided rows that are within the tolerance."""
    covered: float
    """Smallest share of the rows whose interval covers the measured step."""
    half_width_pct: float
    """Bound on the median half width of the intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Bounds in addition to two fixed ones: every replay within its tolerance and every what-if
    within 10 %."""

    whatifs_within: float = 0.95
    """Smallest share of the what-ifs that are within the tolerance."""
    replay_error_pct: float | None = 2.0
    """Bound on the median replay error."""
    unexplained_pct: float | None = 3.0
    covered: float | None = 0.85
    """Smallest share of the what-ifs whose interval covers the measured step."""
    half_width_pct: float | None = 6.0
    policies_within: float = 0.9
    """Smallest share of the decided policies that are within the tolerance."""
    policies_undecided: float = 0.2
    """Largest share of the policies whose noise exceeds the tolerance."""
    pooled: PooledGates | None = None
    """Bounds that replace those of single kinds."""


def broken(
    rows: Sequence[Row], checks: Sequence[Check], summary: dict[str, Any], gates: Gates
) -> list[str]:
    """Returns the violated gates in words; empty if all pass."""
    if gates.pooled is not None:
        of_rows = list(_of_pooled(rows, gates.pooled))
    else:
        of_rows = [
            *_of_replay(rows, summary.get("replay"), gates),
            *_of_whatif(summary.get("whatif"), gates),
            *_of_policies(summary.get("policy"), gates),
        ]
    return [
        *of_rows,
        *(f"check {check.case} does not hold" for check in checks if check.holds is False),
    ]


def _of_replay(rows: Sequence[Row], found: dict[str, Any] | None, gates: Gates) -> Iterator[str]:
    if found is None:
        return
    if found["within"] < found["cases"]:
        yield f"{found['cases'] - found['within']} replays are not within max(5 %, 2 x noise)"
    error_pct, most_pct = gates.replay_error_pct, gates.unexplained_pct
    if error_pct is not None and (found["median_error_pct"] or 0) > error_pct:
        yield f"replay: the median error is above {error_pct:g} %"
    unexplained = [
        row.case for row in rows if most_pct is not None and (row.unexplained_pct or 0) > most_pct
    ]
    if unexplained:
        yield f"more than {most_pct:g} % is unexplained in {', '.join(unexplained)}"


def _of_whatif(found: dict[str, Any] | None, gates: Gates) -> Iterator[str]:
    if found is None:
        return
    yield from _of_errors(found, gates.whatifs_within, "what-ifs")
    if gates.covered is not None and found["covered"] < gates.covered * found["cases"]:
        yield (
            f"fewer than {100 * gates.covered:g} % of the what-ifs' intervals"
            " cover what was measured"
        )
    width_pct = gates.half_width_pct
    if width_pct is not None and (found["median_half_width_pct"] or 0) > width_pct:
        yield f"the intervals' median half width is above {width_pct:g} %"


def _of_policies(found: dict[str, Any] | None, gates: Gates) -> Iterator[str]:
    """Gates of the policies that noise leaves decidable."""
    if found is None:
        return
    decided = found["decided"]
    if found["cases"] - decided > gates.policies_undecided * found["cases"]:
        yield f"noise leaves {found['cases'] - decided} of {found['cases']} policies undecided"
    of_decided = {
        "cases": decided,
        "within": found["decided_within"],
        "within_10_pct": found["decided_within_10_pct"],
    }
    yield from _of_errors(of_decided, gates.policies_within, "policies")


def _of_pooled(rows: Sequence[Row], gates: PooledGates) -> Iterator[str]:
    if not rows:
        return
    decided = [row for row in rows if not row.is_undecided]
    num_within = sum(row.is_within for row in decided)
    if num_within < gates.within * len(decided):
        yield (
            f"fewer than {100 * gates.within:g} % of the rows are within max(5 %, 2 x noise):"
            f" {num_within} of {len(decided)}"
        )
    num_covered = sum(row.is_covered is True for row in rows)
    if num_covered < gates.covered * len(rows):
        yield (
            f"fewer than {100 * gates.covered:g} % of the intervals cover what was measured:"
            f" {num_covered} of {len(rows)}"
        )
    widths = [row.half_width_pct for row in rows if row.half_width_pct is not None]
    if widths and median(widths) > gates.half_width_pct:
        yield f"the intervals' median half width is above {gates.half_width_pct:g} %"


def _of_errors(found: dict[str, Any], within: float, what: str) -> Iterator[str]:
    if found["within"] < within * found["cases"]:
        yield f"fewer than {100 * within:g} % of the {what} are within max(5 %, 2 x noise)"
    if found["within_10_pct"] < found["cases"]:
        yield f"{found['cases'] - found['within_10_pct']} {what} are not within 10 %"
