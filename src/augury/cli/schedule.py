"""``augury schedule`` compares communication policies on a run, and writes the best as a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Bandwidth, Force, Json, Latency, MaxBytes, Page
from augury.cli.progress import working
from augury.cli.say import given, next_command, next_planned_run, say, say_written
from augury.report.exports import check_targets
from augury.report.formats import JSON_SUFFIXES, PAGE_SUFFIXES, PLOT_SUFFIXES

ALL_POLICIES = "all"


def schedule(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|GRAPH|PROBLEM.json",
            help="A recorded run's folder, a graph (.augury), or a scheduling problem.",
        ),
    ],
    *,
    policy: Annotated[
        str, typer.Option(metavar="NAMES", help="all, or a list: ddp,prophet,augury.")
    ] = ALL_POLICIES,
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PLAN.json", help="Write the best order as a plan."),
    ] = None,
    low_risk: Annotated[
        bool,
        typer.Option("--low-risk", help="Only orders that stock DDP can follow with bucket sizes."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="Draw released and arrived bytes; for one policy, its pieces.",
        ),
    ] = None,
    page: Page = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the problem, which can replace RUN."),
    ] = None,
    force: Force = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Compare communication policies on a run; write the best as a plan."""
    check_targets((out, JSON_SUFFIXES), (problem, JSON_SUFFIXES), force=force)
    check_targets((plot, PLOT_SUFFIXES), (page, PAGE_SUFFIXES), force=force)
    import_numpy()
    from augury import api

    opened = api.open(run, max_bytes=max_bytes, progress=working)
    answer = opened.schedule(policy=policy, bandwidth=bandwidth, latency=latency, low_risk=low_risk)
    plan = answer.save_plan(out, force=force) if out is not None else None
    if plot is not None:
        answer.save_plot(plot, force=force)
    if page is not None:
        answer.save_page(page, force=force)
    if problem is not None:
        answer.save_problem(problem, force=force)
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout)
    say_written(plot, page, problem, plan)
    if plan is not None:
        # The run that the plan was made from is usually in the default folder.
        next_planned_run(plan, opened.job_command)
    elif answer.result.can_pay:
        options = {
            "--policy": policy,
            "--bandwidth": bandwidth,
            "--latency": latency,
            "--max-bytes": max_bytes,
        }
        if policy == ALL_POLICIES:
            del options["--policy"]
        flags = ["--low-risk"] if low_risk else []
        next_command("schedule", run, *given(options), *flags, "-o", "plan.json")
    elif out is not None:
        say(f"no plan was written to {out}: no plan pays off")
