"""``augury validate oracle`` compares the oracle with a table of measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from augury.cli import options
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.report.exports import check_targets
from augury.report.formats import JSON_SUFFIXES


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
    collectives: options.Collectives = None,
    precision: options.Precision = "fp32",
    group: options.Group = None,
    overlap: options.Overlap = 0.0,
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
    engine: options.Workers = "processes",
    address: options.Address = None,
    jobs: options.Jobs = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Compare the oracle with measurements; fit its constants."""
    assert what == "oracle"
    check_targets((out, JSON_SUFFIXES), force=force)
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
    if out is not None:
        answer.save_constants(out, force=force)
    failure = answer.failed_gate(at_least)
    if not json:
        answer.render(sys.stdout)
        if out is not None:
            say(f"wrote {out}")
            next_command("oracle", "--constants", out, "--cluster", cluster, "--model", "...")
        else:
            next_command(
                "validate", "oracle", "--measured", measured, "--fit", measured, "-o", "..."
            )
    elif failure is None:
        print(answer.to_json())
    if failure is not None:
        raise failure
