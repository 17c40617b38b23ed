"""``augury validate oracle`` compares the oracle with a table of measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from augury.cli.options import Address, Collectives, Force, Jobs, Json, Overlap, Precision, Workers
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import GateError
from augury.report.exports import check_target


def validate(
    what: Annotated[Literal["oracle"], typer.Argument(metavar="oracle", help="Part to validate.")],
    *,
    measured: Annotated[
        Path, typer.Option(metavar="FILE.csv", help="Measurements to compare with.")
    ],
    fit: Annotated[
        Path | None,
        typer.Option(metavar="FILE2.csv", help="Fit the constants to these measurements first."),
    ] = None,
    every_other: Annotated[
        Literal["first", "second"] | None,
        typer.Option(
            help="Fit only to every other scale, starting with the first or the second;"
            " compare with the rest of the table."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare only this model's rows.")
    ] = None,
    fit_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Fit only to this model's rows.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", help="Cluster of the measurements.")
    ] = "abci",
    collectives: Collectives = None,
    precision: Precision = "fp32",
    group: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Devices per group of a hybrid strategy; by default those of one host.",
        ),
    ] = None,
    overlap: Overlap = 0.0,
    constants: Annotated[
        str,
        typer.Option(metavar="published|bare|FILE.json", help="Constants to use without --fit."),
    ] = "bare",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE.json", help="Write the constants to this file."),
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(
            metavar="PCT", help="Exit with code 5 if the mean accuracy is lower than this."
        ),
    ] = None,
    engine: Workers = "processes",
    address: Address = None,
    jobs: Jobs = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Compare the oracle with measurements; fit its constants."""
    assert what == "oracle"
    if out is not None:
        check_target(out, (".json",), force=force)
    from augury import api

    answer = api.validate_oracle(
        measured,
        fit=fit,
        fit_half=every_other,
        model=model,
        fit_model=fit_model,
        cluster=cluster,
        collectives=collectives,
        precision=precision,
        group=group,
        overlap=overlap,
        constants=constants,
        engine=engine,
        address=address,
        jobs=jobs,
        progress=working,
    )
    result = answer.result
    if out is not None:
        answer.save_constants(out, force=force)
    failed = at_least is not None and result.mean_accuracy_pct < at_least
    if not json:
        answer.render(sys.stdout)
        if out is not None:
            say(f"wrote {out}")
            next_command("oracle", "--constants", out, "--cluster", cluster, "--model", "...")
        else:
            next_command(
                "validate", "oracle", "--measured", measured, "--fit", measured, "-o", "..."
            )
    elif not failed:
        print(answer.to_json())
    if failed:
        failure = GateError(
            f"the mean accuracy is {result.mean_accuracy_pct:.2f} %, below {at_least:g} %",
            remedy="fit the constants to measurements of this cluster",
        )
        # With --json, the document that reports the failure contains the validation too.
        failure.result = result
        raise failure
