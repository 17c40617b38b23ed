"""``augury diff``: what became of a change: measured before, measured after, and predicted."""

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
    from augury.core.trace.trace import Trace


def diff(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="A recorded run's folder, or one of several.")
    ],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", help="The same job, recorded with the change.")
    ],
    *,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PLAN", help="What was predicted: the plan that AFTER followed."),
    ] = None,
    require_gain: Annotated[
        float | None,
        typer.Option(metavar="PCT", help="Exit with 5 where the gain is less than this."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare two runs with each other, and with what a plan predicted."""
    import_numpy()
    from augury.core.plan.plan_file import load_plan
    from augury.diagnose.plan_followed import check_followed
    from augury.diagnose.repeated_runs import compare_repeats

    predicted = load_plan(plan) if plan is not None else None
    pairs = [(_read(first), _read(second)) for first, second in _pairs(before, after)]
    if predicted is not None:
        for _, followed in pairs:
            check_followed(followed, predicted)
    found = compare_repeats(pairs, predicted)
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


def _pairs(before: Path, after: Path) -> list[tuple[Path, Path]]:
    """Two runs, or the runs of ``run --repeat-baseline`` that go by the same number."""
    first, second = _numbered(before), _numbered(after)
    if not first and not second:
        return [(before, after)]
    both = sorted(first.keys() & second.keys())
    if not both:
        raise InputError(
            f"{before} and {after} have no runs of the same number",
            remedy="give two runs, or the folders that `augury run --repeat-baseline` wrote",
        )
    return [(first[number], second[number]) for number in both]


def _numbered(folder: Path) -> dict[int, Path]:
    """Runs that are complete enough to have a record."""
    if not folder.is_dir():
        return {}
    return {
        int(path.name): path
        for path in folder.iterdir()
        if path.name.isascii() and path.name.isdecimal() and next(path.glob("r*.json"), None)
    }


def _read(run: Path) -> Trace:
    from augury.ingest.open_run import open_run

    if not run.is_dir():
        raise InputError(f"{run} is not a run's folder", remedy="give what `augury run` wrote")
    with working(f"reading {run}"):
        return open_run(run)
