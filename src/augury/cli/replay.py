"""``augury replay``: what a graph's step takes, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.exports import (
    check_target,
    describe,
    write_table,
    write_timeline,
)
from augury.cli.fine import read_fine
from augury.cli.graphs import (
    predicted_interval,
    read_graph,
    replay_graph,
    representation_of,
    warnings_of,
)
from augury.cli.options import (
    Engine,
    Force,
    GraphPath,
    Json,
    MaxBytes,
    MaxEvents,
    NoFold,
)
from augury.cli.say import next_command, say
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
    fine: Annotated[
        bool,
        typer.Option("--fine", help="With collectives as sends on links, from what --wire saw."),
    ] = False,
    engine: Engine = "auto",
    no_fold: NoFold = False,
    top: Annotated[int, typer.Option(min=1, help="Lines that each list may have.")] = 10,
    max_bytes: MaxBytes = None,
    max_events: MaxEvents = DEFAULT_MAX_EVENTS,
    force: Force = False,
) -> None:
    """Predict a step, and show what it waits for."""
    if timeline:
        check_target(timeline, TIMELINE_SUFFIXES, force=force)
    if table:
        check_target(table, TABLE_SUFFIXES, force=force)
    source = (
        read_fine(graph, max_bytes=max_bytes).expanded()
        if fine
        else read_graph(graph, max_bytes=max_bytes)
    )
    result = replay_graph(source, engine=engine, fold=not no_fold)
    from augury.report.summarize import summarize

    run = representation_of(result)
    summary = summarize(
        result, interval_ns=predicted_interval(result, run), ledger=warnings_of(run)
    )
    notes: list[str] = []
    if timeline:
        written = write_timeline(
            result, timeline, force=force, max_events=max_events, title=graph.name
        )
        notes += describe(timeline, written)
    if table:
        write_table(result, table, force=force)
        notes.append(f"wrote {table}: one row an operation")
    if json:
        from augury.report.as_json import encode

        print(encode(summary))
        return
    from augury.report.terminal import render

    render(summary, sys.stdout, name=graph.name, top=top)
    say(*notes)
    if not timeline:
        next_command("report", graph, "-o", "timeline.json")
