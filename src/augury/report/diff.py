"""Renders the comparison of two runs for the terminal, with the prediction of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.units import format_bytes, format_count, format_ns
from augury.report.console import columns, make_console, title
from augury.report.phrases import gain_words
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from rich.console import Console

    from augury.core.measured_step import MeasuredRun
    from augury.core.results.comparison import Comparison


MACHINE_CHANGED_PCT = 2.0
"""Smaller changes of the machine's speed are not mentioned."""

MAX_CHANGES = 5
"""Most changes that are printed of phases, of kinds, of layers and of operations."""

MIN_CHANGE_SHARE = 0.005
"""Share of the step below which a change is not printed."""


def render_diff(found: Comparison, file: TextIO, *, before: str, after: str) -> None:
    console = make_console(file)
    table = columns("", ">step", ">gain", "~90 % interval")
    table.add_row("measured before", format_ns(found.before.step_ns), "", _details(found.before))
    if found.predicted_step_ns is not None and found.predicted_gain_pct is not None:
        table.add_row(
            "predicted",
            format_ns(found.predicted_step_ns),
            gain_words(found.predicted_gain_pct),
            f"{_range(found.predicted_interval_ns)}{_policy(found)}".removesuffix(", "),
        )
    table.add_row(
        "measured after",
        format_ns(found.after.step_ns),
        gain_words(100 * (1 - found.after.step_ns / found.before.step_ns)),
        _details(found.after),
    )
    with console.capture() as capture:
        console.print(
            f"{safe(before, max_chars=60)} -> {safe(after, max_chars=60)}",
            markup=False,
            highlight=False,
        )
        console.print(table)
        for line in verdict_lines(found):
            console.print(line, markup=False, highlight=False)
        _show_changes(console, found)
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _show_changes(console: Console, found: Comparison) -> None:
    """Prints the certain changes of each kind, unless there are none."""
    parts = (
        ("phase", found.phase_changes),
        ("kind", found.kind_changes),
        ("layer", found.layer_changes),
        ("operation", found.operation_changes),
    )
    least_ns = MIN_CHANGE_SHARE * found.before.step_ns
    table = columns("", "~", ">before", ">after", ">change", ">")
    for label, changes in parts:
        certain = [one for one in changes if one.is_certain and abs(one.change_ns) >= least_ns]
        for change in certain[:MAX_CHANGES]:
            sign = "+" if change.change_ns > 0 else "-"
            table.add_row(
                label,
                safe(change.name, max_chars=60),
                format_ns(change.before_ns),
                format_ns(change.after_ns),
                f"{sign}{format_ns(abs(change.change_ns))}",
                "new" if change.change_pct is None else f"{change.change_pct:+.1f} %",
            )
    if table.row_count:
        title(console, "Where the time changed", "per step, beyond noise")
        console.print(table)


def _details(run: MeasuredRun) -> str:
    steps = format_count(run.num_steps, "step")
    return f"{format_ns(run.low_ns)} to {format_ns(run.high_ns)}, {steps}"


def _range(interval_ns: tuple[int, int] | None) -> str:
    if interval_ns is None:
        return ""
    return f"{format_ns(interval_ns[0])} to {format_ns(interval_ns[1])}, "


def _policy(found: Comparison) -> str:
    return f"policy {safe(found.policy, max_chars=40)}" if found.policy is not None else ""


def verdict_lines(found: Comparison) -> list[str]:
    """The verdict in sentences: first whether there is a gain or a loss, unless the plan was made
    for less memory."""
    low, high = found.gain_interval_pct
    if found.memory_limit_bytes is not None:
        limit = format_bytes(found.memory_limit_bytes)
        lines = [
            f"The plan was made for a memory limit of {limit}, not for a gain: the 90 % interval of"
            f" the gain is {low:+.1f} to {high:+.1f} %."
        ]
    elif found.is_told_apart:
        word = "gain" if low > 0 else "loss"
        lines = [f"A {word}: the 90 % interval of the gain is {low:+.1f} to {high:+.1f} %."]
    else:
        lines = [
            f"Neither a gain nor a loss is certain: the 90 % interval of the gain is {low:+.1f} to"
            f" {high:+.1f} %."
        ]
    lines += [f"The runs are of different jobs: {one}." for one in found.differences]
    lines += _source(found)
    for change in found.compute_changes:
        lines.append(
            f"The time of compute changed: {safe(change.kind, max_chars=20)} took"
            f" {format_ns(change.before_ns)} per step before and {format_ns(change.after_ns)} after"
            f" ({change.change_pct:+.1f} %)."
        )
    if found.followed_from_step is not None:
        lines.append(f"The plan was followed from step {found.followed_from_step}.")
    elif found.predicted_step_ns is not None:
        lines.append("The run does not say whether and since when the plan was followed.")
    for section, reason in found.not_applied.items():
        lines.append(f"Section {section} of the plan was not applied: {safe(reason)}.")
    if found.not_applied and found.error_pct is not None:
        lines.append("The prediction is that of the plan without it, as far as the plan states it.")
    if found.error_pct is not None:
        off = f"the prediction was {found.error_pct:+.1f} % off"
        is_trial = found.gain_source == "trial"
        measured = "The gain of the trial" if is_trial else "The measured step"
        if found.came_true:
            lines.append(f"{measured} lies inside the predicted 90 % interval; {off}.")
        else:
            lines.append(f"A miss: {measured.lower()} lies outside the predicted interval; {off}.")
    return lines


def _source(found: Comparison) -> list[str]:
    lines = []
    change = found.machine_change_pct
    if change is not None and abs(change) > MACHINE_CHANGED_PCT and found.gain_source != "trial":
        speed, took = ("slower", "longer") if change > 0 else ("faster", "less")
        lines.append(
            f"The machine was {speed} after the change: the same copy of memory took"
            f" {abs(change):.1f} % {took}. At equal speed the gain is {found.gain_pct:+.1f} %."
        )
    if found.num_pairs > 1:
        lines.append(
            f"The gain is the mean of {found.num_pairs} pairs of alternating runs, so that slow"
            " drift cancels."
        )
    if found.gain_source == "trial" and found.trial is not None:
        lines += [
            "The gain is that of the trial in the job, in which blocks of stock and planned steps"
            f" alternated from step {found.trial.first_step} to {found.trial.last_step}."
        ]
    if found.gain_source == "undelayed":
        shares = [f"{run.delay_pct or 0:.0f} %" for run in (found.before, found.after)]
        loads = [f"{run.other_load or 0:.1f}" for run in (found.before, found.after)]
        lines += [
            f"Other processes used {loads[0]} cores before and {loads[1]} after. The gain of"
            f" {found.gain_pct:+.1f} % excludes the time for which training threads had no core"
            f" ({shares[0]} and {shares[1]} of the steps)."
        ]
    return lines
