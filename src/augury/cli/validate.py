"""``augury validate oracle``: the oracle's words held against a table of measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from augury.cli.options import Collectives, Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import GateError, InputError, UsageError
from augury.report.exports import check_target

if TYPE_CHECKING:
    from augury.oracle.fitting.measured_table import Row


def validate(
    what: Annotated[Literal["oracle"], typer.Argument(metavar="oracle", help="What to check.")],
    *,
    measured: Annotated[
        Path, typer.Option(metavar="FILE.csv", help="Measurements to compare with.")
    ],
    fit: Annotated[
        Path | None,
        typer.Option(metavar="FILE2.csv", help="Measurements to learn constants from first."),
    ] = None,
    every_other: Annotated[
        Literal["first", "second"] | None,
        typer.Option(
            help="Fit on every other scale only, from the first or the second on;"
            " of the same table, compare with the rest."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare only this model's rows.")
    ] = None,
    fit_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Fit only on this model's rows.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(metavar="NAME|FILE.toml", help="Where it was measured.")
    ] = "abci",
    collectives: Collectives = None,
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16"], typer.Option(help="Of compute and activations.")
    ] = "fp32",
    group: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Devices in a group of hybrids; by default a node."),
    ] = None,
    overlap: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of backward that gradients may hide behind."),
    ] = 0.0,
    constants: Annotated[
        str,
        typer.Option(metavar="published|bare|FILE.json", help="Where nothing is fitted."),
    ] = "bare",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE.json", help="Write the constants."),
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="PCT", help="Exit with 5 if the mean accuracy is lower."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Compare the oracle with measurements; fit its constants."""
    assert what == "oracle"
    if out is not None:
        check_target(out, (".json",), force=force)
    if every_other is not None and fit is None:
        raise UsageError("--every-other says what to fit on", remedy="give --fit as well")
    from augury.cli.oracle import find_constants, measured_machine
    from augury.cli.validate_result import result_of
    from augury.oracle.cluster.device import Precision
    from augury.oracle.fitting.corrections import save_constants
    from augury.oracle.fitting.fit_corrections import fit_and_hold_out
    from augury.oracle.fitting.measured_table import every_other as half_of
    from augury.oracle.fitting.measured_table import read_table
    from augury.oracle.fitting.validate import compare, project, rank, works_for
    from augury.oracle.model_reader.read_model import load_model
    from augury.oracle.strategy import Options

    machine = measured_machine(cluster, collectives)
    compared = _of_model(read_table(measured), model, measured)
    fitted_on: list[Row] = []
    if fit is not None:
        fitted_on = _of_model(read_table(fit), fit_model, fit)
        if every_other is not None:
            whole, start = fitted_on, int(every_other == "second")
            fitted_on = half_of(whole, start)
            compared = [row for row in compared if row not in fitted_on]
    with working("reading models"):
        works = works_for([*compared, *fitted_on], load_model, machine, Precision(precision))
    options = Options(group=group, overlap=overlap, is_bare=constants == "bare" and fit is None)
    if fit is not None:
        with working("fitting constants"):
            known, held_out = fit_and_hold_out(fitted_on, works, machine, options)
    else:
        known, held_out = find_constants(constants), []
    if out is not None:
        save_constants(known, out, force=force)
    found = compare(compared, works, machine, known, options)
    if not found:
        raise InputError(
            "nothing is left to compare with", remedy="give rows that are not fitted on"
        )
    result = result_of(
        found,
        rank(found),
        project(compared, works, machine),
        machine=machine,
        constants=known,
        fitted_on=fitted_on,
        held_out=held_out,
    )
    missed = None
    if at_least is not None and result.mean_accuracy_pct < at_least:
        missed = GateError(
            f"{result.mean_accuracy_pct:.2f} % accurate, less than {at_least:g} %",
            remedy="fit the constants on measurements of this cluster",
        )
        missed.result = result
    if json and missed is None:
        from augury.report.as_json import encode

        print(encode(result))
    elif not json:
        from augury.report.oracle_validation import render_validation

        render_validation(result, sys.stdout)
        if out is not None:
            say(f"wrote {out}")
            next_command("oracle", "--constants", out, "--cluster", cluster, "--model", "...")
        else:
            next_command(
                "validate", "oracle", "--measured", measured, "--fit", measured, "-o", "..."
            )
    if missed is not None:
        raise missed


def _of_model(rows: list[Row], model: str | None, path: Path) -> list[Row]:
    found = [row for row in rows if model is None or row.model.lower() == model.lower()]
    if not found:
        known = ", ".join(sorted({row.model[:40] for row in rows}))
        raise InputError(f"{path} has nothing of {model}", remedy=f"it has {known}")
    return found
