"""``augury report``: a replayed graph as a file for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from augury.cli.exports import (
    check_target,
    describe,
    write_table,
    write_timeline,
)
from augury.cli.graphs import read_graph, replay_graph
from augury.cli.options import (
    Engine,
    Force,
    GraphPath,
    Json,
    MaxBytes,
    MaxEvents,
    NoFold,
)
from augury.cli.say import say
from augury.report.formats import DEFAULT_MAX_EVENTS, TABLE_SUFFIXES, TIMELINE_SUFFIXES


def report(
    graph: GraphPath,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Timeline for ui.perfetto.dev (.json, .json.gz) or table (.parquet).",
        ),
    ],
    max_events: MaxEvents = DEFAULT_MAX_EVENTS,
    engine: Engine = "auto",
    no_fold: NoFold = False,
    max_bytes: MaxBytes = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the replayed timeline to a file."""
    check_target(out, TIMELINE_SUFFIXES + TABLE_SUFFIXES, force=force)
    source = read_graph(graph, max_bytes=max_bytes)
    timeline = replay_graph(source, engine=engine, fold=not no_fold)
    facts: dict[str, object] = {}
    if out.name.endswith(TABLE_SUFFIXES):
        write_table(timeline, out, force=force)
        lines = [f"wrote {out}: one row for each of {timeline.graph.num_ops:,} operations"]
    else:
        import msgspec

        written = write_timeline(
            timeline, out, force=force, max_events=max_events, title=graph.name
        )
        lines = describe(out, written)
        facts = msgspec.to_builtins(written)
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(path=str(out), num_ops=timeline.graph.num_ops, **facts))
        return
    say(*lines)
