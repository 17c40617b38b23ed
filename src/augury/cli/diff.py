"""``augury diff``: what became of a change: measured before, measured after, and as foretold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.graphs import import_numpy
from augury.cli.options import Json
from augury.cli.progress import working
from augury.core.errors import GateError, InputError

if TYPE_CHECKING:
    from augury.core.trace import Trace


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A recorded run's folder.")],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", help="The same job, recorded with the change.")
    ],
    *,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PLAN", help="What was foretold: the plan that AFTER followed."),
    ] = None,
    require_gain: Annotated[
        float | None,
        typer.Option(metavar="PCT", help="Exit with 5 where the gain is less than this."),
    ] = None,
    json: Json = False,
) -> None:
    """Hold two runs against each other, and against what was foretold."""
    import_numpy()
    from augury.core.plan_file import load_plan
    from augury.diagnose.compare import compare_runs

    foretold = load_plan(plan) if plan is not None else None
    found = compare_runs(_read(before), _read(after), foretold)
    missed = None
    if require_gain is not None and found.gain_pct < require_gain:
        missed = GateError(
            f"the gain is {found.gain_pct:+.1f} %, not {require_gain:+.1f} %",
            remedy="look at what differs: augury replay",
        )
        missed.result = {"result": found}
    if json and missed is None:
        from augury.report.as_json import encode_document

        print(encode_document(result=found))
    elif not json:
        from augury.report.diff import render_diff

        render_diff(found, sys.stdout, before=before.name, after=after.name)
    if missed is not None:
        raise missed


def _read(run: Path) -> Trace:
    from augury.ingest.run import open_run

    if not run.is_dir():
        raise InputError(f"{run} is not a run's folder", remedy="give what `augury run` wrote")
    with working(f"reading {run}"):
        return open_run(run)
