"""``augury schedule`` compares communication policies on a run, and writes the best as a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Bandwidth, Force, Json, Latency, MaxBytes
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.report.exports import check_target


def schedule(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|GRAPH|PROBLEM.json",
            help="A recorded run's folder, a graph (.augury), or a problem.",
        ),
    ],
    *,
    policy: Annotated[
        str, typer.Option(metavar="NAMES", help="all, or some of them: ddp,prophet,augury.")
    ] = "all",
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PLAN.json", help="Write the best as a plan."),
    ] = None,
    low_risk: Annotated[
        bool,
        typer.Option("--low-risk", help="Only what stock DDP does with a list of bucket sizes."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="Draw bytes released and arrived; of one policy, its pieces.",
        ),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the problem, to be asked about again."),
    ] = None,
    force: Force = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Compare communication policies on a run; write the best as a plan."""
    for target, suffix in ((out, ".json"), (plot, ".svg"), (problem, ".json")):
        if target is not None:
            check_target(target, (suffix,), force=force)
    import_numpy()
    from augury import api

    answer = api.open(run, max_bytes=max_bytes, progress=working).schedule(
        policy=policy, bandwidth=bandwidth, latency=latency, low_risk=low_risk
    )
    plan = answer.save_plan(out, force=force) if out is not None else None
    if plot is not None:
        answer.save_plot(plot, force=force)
    if problem is not None:
        answer.save_problem(problem, force=force)
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout)
    for written in (plot, problem, plan):
        if written is not None:
            say(f"wrote {written}")
    if plan is not None:
        next_command("run", "--plan", plan, "--", "torchrun", "...", "train.py")
    elif answer.result.can_pay:
        next_command("schedule", run, "-o", "plan.json")
    elif out is not None:
        say(f"no plan was written to {out}: no plan pays off")
