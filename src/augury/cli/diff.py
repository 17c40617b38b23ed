"""``augury diff`` compares two runs, and a run with the prediction of a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Force, Json, Page
from augury.cli.progress import working
from augury.cli.say import say_written
from augury.core.units import parse_percent
from augury.report.exports import check_targets
from augury.report.formats import PAGE_SUFFIXES


def diff(
    before: Annotated[
        Path,
        typer.Argument(metavar="BEFORE", help="A run's folder, or a folder of repeated runs."),
    ],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", help="The same job, recorded with the change.")
    ],
    *,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PLAN", help="The plan that AFTER followed, with its prediction."),
    ] = None,
    require_gain: Annotated[
        float | None,
        typer.Option(metavar="PCT", help="Exit with code 5 if the gain is smaller."),
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option(metavar="PCT", help="Exit with code 5 if AFTER is slower beyond doubt."),
    ] = None,
    page: Page = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Compare two runs with each other, and with the prediction of a plan."""
    check_targets((page, PAGE_SUFFIXES), force=force)
    import_numpy()
    from augury import api

    largest_loss_pct = None if fail_above is None else parse_percent(fail_above)
    answer = api.open(before, progress=working).diff(after, plan)
    if page is not None:
        answer.save_page(page, force=force)
    failure = answer.failed_gate(least_gain_pct=require_gain, largest_loss_pct=largest_loss_pct)
    if not json:
        answer.render(sys.stdout)
    elif failure is None:
        print(answer.to_json())
    if failure is not None:
        raise failure
    if not json:
        say_written(page)
