"""``augury report`` writes a run as a page of HTML, or its replay as a file for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Engine, Force, GraphPath, Json, MaxBytes, MaxEvents, NoFold
from augury.cli.progress import working
from augury.cli.say import say
from augury.report.exports import check_report, describe
from augury.report.formats import DEFAULT_MAX_EVENTS


def report(
    graph: GraphPath,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Page (.html), timeline for ui.perfetto.dev (.json, .json.gz), table (.parquet).",
        ),
    ],
    max_events: MaxEvents = DEFAULT_MAX_EVENTS,
    engine: Engine = "auto",
    no_fold: NoFold = False,
    quick: Annotated[bool, typer.Option("--quick", help="Page: no diagnosis, what-ifs.")] = False,
    max_bytes: MaxBytes = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a page about a run, or its replayed timeline."""
    check_report(out, force=force)
    import_numpy()
    from augury import api

    run = api.open(graph, max_bytes=max_bytes, progress=working)
    written = run.report(
        out, force=force, max_events=max_events, engine=engine, fold=not no_fold, quick=quick
    )
    if json:
        from augury.report.as_json import encode_document, fields_of

        print(encode_document(path=str(out), num_ops=run.graph.num_ops, **fields_of(written)))
    else:
        say(*describe(out, run.graph.num_ops, written))
