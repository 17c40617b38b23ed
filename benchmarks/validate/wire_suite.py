"""Jobs recorded with the wire: replays with every message, changes of single links, byte
accounting, and the recorder's overhead."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from augury.ingest.clocks.rank_clocks import Source
from benchmarks.validate.checks import Check, clocks, cost_inside
from benchmarks.validate.gates import Gates
from benchmarks.validate.jax_job import jax_checks
from benchmarks.validate.progress import Progress
from benchmarks.validate.rows import Row
from benchmarks.validate.settings import Setting
from benchmarks.validate.suite import (
    Suite,
    is_recorded,
    is_wanted,
    predicted_change,
    recorded,
    replayed,
)
from benchmarks.validate.wire_checks import bytes_of_job, sources_agree
from benchmarks.validate.wire_cost import COSTS, Cost, cost_of_wire
from benchmarks.validate.wire_settings import WIRE_SETTINGS

NAME = "wire"
SKEWED = ("last-1gbit", "last-4ranks")
LED_BACK_NS: dict[Source, int] = {"wire": 200_000}


def rows(settings: list[Setting], folder: Path, only: str | None) -> Iterator[Row]:
    for setting in recorded(settings, folder):
        if is_wanted(setting.name, only):
            yield replayed(NAME, setting, folder, "--fine")
        for change in setting.changes:
            if is_wanted(f"{setting.name}/{change.name}", only):
                yield predicted_change(NAME, setting, change, folder, ("--fine", *change.whatif))
                yield predicted_change(NAME, setting, change, folder, change.coarse, kind="coarse")


def checks(rows: list[Row], only: str | None, progress: Progress) -> Iterator[Check]:
    folder = progress.folder
    if only is None:
        yield from better_than_coarse(rows)
        yield from cost_inside(rows, NAME)
    for setting in WIRE_SETTINGS:
        if not is_recorded(setting, folder):
            continue
        run = folder / setting.name / "run"
        if is_wanted(f"{setting.name}/bytes", only):
            yield from bytes_of_job(run, f"{setting.name}/bytes")
        if is_wanted(f"{setting.name}/clocks", only):
            yield from sources_agree(run, f"{setting.name}/clocks")
        if setting.name in SKEWED:
            yield from clocks(
                setting, folder, NAME, LED_BACK_NS, lambda case: is_wanted(case, only)
            )
    if is_wanted("jax", only):
        if progress.can_measure:
            yield from progress.checks("jax", lambda: jax_checks(folder / "jax", again=True))
        else:
            yield from jax_checks(folder / "jax", again=False)
    for cost in COSTS:
        if is_wanted(cost.name, only):
            yield from progress.checks(cost.name, partial(_cost, cost, folder))


def _cost(cost: Cost, folder: Path) -> Iterator[Check]:
    print(f"{cost.name}: the same job with and without the recorder", file=sys.stderr, flush=True)
    yield from cost_of_wire(cost, folder / cost.name)


UNEQUAL = frozenset(
    f"{setting.name}/{change.name}"
    for setting in WIRE_SETTINGS
    for change in setting.changes
    if change.link is not None
)


def better_than_coarse(rows: Sequence[Row], unequal: frozenset[str] = UNEQUAL) -> Iterator[Check]:
    """On unequal links, if all of these cases were requested: the mean error of the fine model
    divided by that of the coarse one. The mean, since the median hides the difference: where a ring
    waits for its slowest link both models agree."""
    errors = {
        kind: [
            # A missing answer counts as an error of 100 %.
            100.0 if row.error_pct is None else abs(row.error_pct)
            for row in rows
            if row.case in unequal and row.kind == kind
        ]
        for kind in ("whatif", "coarse")
    }
    if len(errors["whatif"]) < len(unequal):
        return
    coarse = fmean(errors["coarse"])
    yield Check(
        suite=NAME,
        case="unequal-links/fine-over-coarse",
        kind="ratio",
        value=round(fmean(errors["whatif"]) / coarse, 3) if coarse else None,
        unit="x",
        at_most=1.0,
    )


WIRE = Suite(
    name=NAME,
    settings=WIRE_SETTINGS,
    rows=rows,
    checks=checks,
    gates=Gates(
        whatifs_within=0.9,
        replay_error_pct=None,
        unexplained_pct=None,
        covered=None,
        half_width_pct=None,
    ),
    quick=("last-1gbit", "last-1gbit/link-1-0.5x", "last-1gbit/bytes", "jax"),
)
