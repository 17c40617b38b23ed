"""``augury diff`` compares two runs, and a run with the prediction of a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Json
from augury.cli.progress import working
from augury.core.errors import GateError


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
    json: Json = False,
) -> None:
    """Compare two runs with each other, and with the prediction of a plan."""
    import_numpy()
    from augury import api

    answer = api.open(before, progress=working).diff(after, plan)
    gain_pct = answer.result.gain_pct
    failure = None
    if require_gain is not None and gain_pct < require_gain:
        failure = GateError(
            f"the gain is {gain_pct:+.1f} %, less than {require_gain:+.1f} %",
            remedy="compare the replays of both runs: augury replay",
        )
        # With --json, the document that reports the failure contains the comparison too.
        failure.result = {"result": answer.result}
    if not json:
        answer.render(sys.stdout)
    elif failure is None:
        print(answer.to_json())
    if failure is not None:
        raise failure
