"""Terminal report of a validation: accuracy of the oracle against measurements."""

from __future__ import annotations

from typing import TextIO

from augury.core.results.oracle import ValidationResult
from augury.core.units import NS_PER_S, format_ns, format_percent
from augury.report.console import columns, make_console, title
from augury.report.safe_text import safe


def render_validation(result: ValidationResult, file: TextIO) -> None:
    console = make_console(file)
    with console.capture() as capture:
        table = columns(
            "model", "strategy", ">devices", ">batch", ">measured", ">predicted", ">error"
        )
        for row in result.rows:
            table.add_row(
                safe(row.model),
                row.strategy,
                str(row.devices),
                str(row.global_batch),
                format_ns(row.measured_step_s * NS_PER_S),
                format_ns(row.predicted_step_s * NS_PER_S),
                format_percent(row.error_pct, signed=True),
            )
        console.print(table)
        title(console, "Accuracy", "1 - |predicted - measured| / measured")
        table = columns("", ">")
        for name, accuracy in (
            *result.accuracy_by_strategy_pct.items(),
            *result.accuracy_by_model_pct.items(),
            (f"all {result.num_rows}", result.mean_accuracy_pct),
        ):
            table.add_row(safe(name), format_percent(accuracy))
        console.print(table)
        if result.rankings:
            title(console, "Order of strategies", "predicted, by time per sample")
            console.print(
                "pairs right: pairs of strategies in the measured order; regret: extra time of the"
                " predicted fastest over the measured fastest",
                style="dim",
            )
            table = columns("model", ">devices", ">pairs right", ">regret", "~order")
            for one in result.rankings:
                table.add_row(
                    safe(one.model),
                    str(one.devices),
                    f"{one.num_right} of {one.num_pairs}",
                    format_percent(one.regret_pct),
                    " < ".join(one.predicted),
                )
            console.print(table)
        if result.projections:
            title(console, "Bare equations", "error against the projection in the table")
            table = columns("model", "strategy", ">mean error", ">worst error")
            for projected in result.projections:
                table.add_row(
                    safe(projected.model),
                    projected.strategy,
                    format_percent(projected.mean_error_pct, signed=True),
                    format_percent(projected.max_error_pct, signed=True),
                )
            console.print(table)
        if result.held_out:
            title(console, "Held out", "rows left out of the fit, then predicted")
            table = columns("~left out", ">rows", ">accuracy", ">worst error", ">in interval")
            for held in result.held_out:
                table.add_row(
                    f"{held.way}: {safe(held.left_out)}",
                    str(held.num_rows),
                    format_percent(held.accuracy_pct),
                    format_percent(held.worst_error_pct, signed=True),
                    f"{held.num_covered} of {held.num_rows}",
                )
            console.print(table)
            console.print("The 90 % intervals are calibrated on these same rows.")
        for line in _verdict(result):
            console.print(line)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _verdict(result: ValidationResult) -> list[str]:
    fitted = f"fitted on {safe(result.fitted_on)}" if result.fitted_on else "bare equations"
    held_out = "" if result.is_held_out else ", some of which are compared here"
    return ["", f"mean accuracy {format_percent(result.mean_accuracy_pct)}; {fitted}{held_out}"]
