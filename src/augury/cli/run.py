"""``augury run`` records a job without changes to its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.options import Force, Json
from augury.cli.say import next_line

if TYPE_CHECKING:
    from augury.job import FinishedJob

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
"""Options behind the first word of the job are the job's."""


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="The job as you start it, or a Python script with its arguments.",
        ),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Write the run to this folder.")
    ] = Path("augury-run"),
    steps: Annotated[
        str,
        typer.Option(
            metavar="FIRST:LAST",
            help="Record these steps, as 10:20 or 10:20,30:40; auto records short windows spread"
            " over the job.",
        ),
    ] = "auto",
    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Profile only these ranks, as 0,3-5; of the others only step times are recorded.",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Also measure the network, after the last window, and modules, after the job.",
        ),
    ] = False,
    calibrate_seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            min=0,
            max=86400,
            help="With --calibrate: longest time for measuring modules; 0 leaves them out.",
        ),
    ] = 30.0,
    wire: Annotated[
        bool,
        typer.Option("--wire", help="Also record TCP traffic, message by message."),
    ] = False,
    wire_events: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1 << 8,
            max=1 << 26,
            help="With --wire: keep at most this many calls per process, 64 bytes each.",
        ),
    ] = 1 << 20,
    watch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=10,
            help="Every N steps, check for stragglers and slower parts; print a line on change.",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Train as this plan says; `augury schedule -o` writes plans."
        ),
    ] = None,
    no_trial: Annotated[
        bool,
        typer.Option("--no-trial", help="With --plan: skip the comparison with stock DDP."),
    ] = False,
    repeat_baseline: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=20,
            help="With --plan: run the job N times without the plan and N times with it,"
            " alternating.",
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            "-m", metavar="MODULE", help="Run a Python module; its arguments follow after --."
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Record a PyTorch job: traces of windows of steps, and the time of every step."""
    from augury.job import BASELINE, PLANNED, make_job, repeat_job, run_job

    job = make_job(
        command or [],
        module=module,
        out=out,
        steps=steps,
        ranks=ranks,
        calibrate=calibrate,
        calibrate_seconds=calibrate_seconds,
        wire=wire,
        wire_events=wire_events,
        watch=watch,
        plan=plan,
        has_trial=not no_trial,
        force=force,
    )
    report = _report_json if json else _report
    if repeat_baseline is None:
        raise typer.Exit(run_job(job, report))
    code = repeat_job(job, repeat_baseline, report)
    if plan is not None and code == 0 and not json:
        words = ("diff", out / BASELINE, out / PLANNED, "--plan", plan)
        print(next_line(*words), file=sys.stderr)
    raise typer.Exit(code)


def _report_json(finished: FinishedJob) -> None:
    from augury.report.as_json import encode_line

    # One line, because the job's own output precedes it on stdout.
    print(encode_line(exit_code=finished.exit_code, run=str(finished.out), result=finished.summary))


def _report(finished: FinishedJob) -> None:
    from augury.report.run_summary import write_run_summary

    write_run_summary(
        finished.summary,
        sys.stderr,  # stdout belongs to the job
        out=finished.out,
        exit_code=finished.exit_code,
        is_part=bool(finished.rank),
    )
