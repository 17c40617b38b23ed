"""``augury optimize`` searches the best combination of changes to a run, and writes a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Address, Force, GraphPath, Jobs, Json, MaxBytes, Workers
from augury.cli.progress import working
from augury.cli.say import given, next_command, next_planned_run, say, say_written
from augury.report.exports import check_targets
from augury.report.formats import JSON_SUFFIXES

BUDGET = "60s"


def optimize(
    run: GraphPath,
    *,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Peak memory that each rank may have, such as 8GiB."),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Changes of numbers to permit: precision, compression, rounding (last bits).",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Sections to choose from: communication,fusion,recompute,precision,compression,"
            "loader,threads.",
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for the search, for each start.")
    ] = BUDGET,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    starts: Annotated[
        int, typer.Option(min=1, metavar="N", help="Searches with seeds of their own.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PLAN.json", help="Write the best plan."),
    ] = None,
    engine: Workers = "processes",
    address: Address = None,
    jobs: Jobs = None,
    force: Force = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Search the best combination of changes to a run; write it as a plan."""
    check_targets((out, JSON_SUFFIXES), force=force)
    import_numpy()
    from augury import api

    opened = api.open(run, max_bytes=max_bytes, progress=working)
    answer = opened.optimize(
        memory_limit=memory_limit,
        allow=allow,
        only=only,
        budget=budget,
        seed=seed,
        starts=starts,
        engine=engine,
        address=address,
        jobs=jobs,
    )
    plan = answer.save_plan(out, force=force) if out is not None else None
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout)
    say_written(plan)
    if plan is not None:
        # The run that the plan was made from is usually in the default folder.
        next_planned_run(plan, opened.job_command)
    elif answer.result.can_pay:
        options = {
            "--memory-limit": memory_limit,
            "--allow": allow,
            "--only": only,
            "--budget": None if budget == BUDGET else budget,
            "--seed": str(seed) if seed else None,
            "--starts": str(starts) if starts > 1 else None,
            "--max-bytes": max_bytes,
        }
        next_command("optimize", run, *given(options), "-o", "plan.json")
    elif out is not None:
        pays = answer.result.gain_pct > answer.result.noise_pct
        reason = "the run's gradients are not known" if pays else "no plan pays off"
        say(f"no plan was written to {out}: {reason}")
