"""``augury replay`` predicts a step and shows its critical path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Engine, Fine, Force, GraphPath, Json, MaxBytes, MaxEvents, NoFold
from augury.cli.progress import working
from augury.cli.say import next_command, next_planned_run, say
from augury.report.exports import check_targets, describe
from augury.report.formats import DEFAULT_MAX_EVENTS, TABLE_SUFFIXES, TIMELINE_SUFFIXES


def replay(
    graph: GraphPath,
    *,
    json: Json = False,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a timeline (.json, .json.gz).")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a table (.parquet).")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PLAN.json", help="Predict the run under this plan, edited or not."),
    ] = None,
    fine: Fine = False,
    engine: Engine = "auto",
    no_fold: NoFold = False,
    top: Annotated[int, typer.Option(min=1, help="Maximum number of lines in each list.")] = 10,
    max_bytes: MaxBytes = None,
    max_events: MaxEvents = DEFAULT_MAX_EVENTS,
    force: Force = False,
) -> None:
    """Predict a step, and show its critical path."""
    check_targets((timeline, TIMELINE_SUFFIXES), (table, TABLE_SUFFIXES), force=force)
    import_numpy()
    from augury import api

    run = api.open(graph, max_bytes=max_bytes, progress=working)
    answer = run.replay(plan=plan, fine=fine, engine=engine, fold=not no_fold)
    notes: list[str] = []
    for target in (timeline, table):
        if target:
            written = answer.write(target, force=force, max_events=max_events)
            notes += describe(target, answer.result.num_ops, written)
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout, top=top)
    say(*notes)
    if plan is not None:
        next_planned_run(plan, run.job_command)
    elif not timeline:
        next_command("report", graph, "-o", "report.html")
