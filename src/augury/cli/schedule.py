"""``augury schedule``: what communication policies would make of a run; the best as a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.exports import check_target
from augury.cli.graphs import import_numpy
from augury.cli.options import (
    Bandwidth,
    Force,
    Json,
    Latency,
    MaxBytes,
)
from augury.cli.say import next_command, say
from augury.core.errors import UsageError
from augury.core.files import ensure_writable, new_file

if TYPE_CHECKING:
    from augury.cli.schedule_case import ScheduleCase
    from augury.report.schedule_result import ScheduleResult
    from augury.schedule.policies.policy import Policy


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
    chosen = _policies(policy, low_risk=low_risk)
    import_numpy()
    from augury.cli.schedule_assess import assess
    from augury.cli.schedule_case import open_case, other_network
    from augury.predict import changes

    wanted = [
        *([changes.bandwidth(bandwidth)] if bandwidth is not None else []),
        *([changes.latency(latency)] if latency is not None else []),
    ]
    case = open_case(
        run, max_bytes=max_bytes, changes=wanted, other=other_network(bandwidth, latency)
    )
    assessment = assess(case, chosen)
    if low_risk:
        assessment = assessment.of_stock_ddp()
    result = assessment.result()
    plan = assessment.write_plan(out, force=force) if out is not None else None
    _write(case, result, plot, problem, force=force, num_policies=len(chosen))
    if json:
        from msgspec.structs import replace

        from augury.report.as_json import encode

        print(encode(replace(result, plan=str(plan) if plan else None)))
        return
    from augury.report.schedule import render_schedule

    render_schedule(result, sys.stdout, name=run.name)
    for written in (plot, problem, plan):
        if written is not None:
            say(f"wrote {written}")
    if plan is not None:
        next_command("run", "--plan", plan, "--", "torchrun", "...", "train.py")
    elif not assessment.can_pay:
        if out is not None:
            say(f"no plan was written: none can pay, so {out} stays as it is")
    else:
        next_command("schedule", run, "-o", "plan.json")


def _policies(names: str, *, low_risk: bool) -> list[Policy]:
    from augury.schedule.policies.registry import POLICIES, find_policy

    if low_risk:
        from augury.schedule.policies.bucket_list import BucketList

        if names != "all":
            raise UsageError("--low-risk chooses the policies", remedy="leave --policy out")
        return [*(find_policy(name) for name in ("ddp", "ddp-best", "mg-wfbp")), BucketList()]
    if names == "all":
        return list(POLICIES)
    return [find_policy(name.strip()) for name in names.split(",")]


def _write(
    case: ScheduleCase,
    result: ScheduleResult,
    plot: Path | None,
    problem: Path | None,
    *,
    force: bool,
    num_policies: int,
) -> None:
    if plot is not None:
        from augury.report.schedule_plot import pieces_svg, stepwise_svg

        ensure_writable(plot, force=force)
        drawn = pieces_svg(result, result.best) if num_policies == 1 else stepwise_svg(result)
        with new_file(plot, force=force) as file:
            file.write(drawn.encode("utf-8"))
    if problem is not None:
        from augury.schedule.problem_file import Stated, save_problem

        save_problem(Stated(problem=case.problem, num_ranks=case.num_ranks), problem, force=force)
