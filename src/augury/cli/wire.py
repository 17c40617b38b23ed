"""``augury wire``: what a recorded job sent from process to process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Json
from augury.cli.progress import working
from augury.cli.say import next_command
from augury.core.errors import InputError

if TYPE_CHECKING:
    from augury.core.trace.trace import Trace


def wire(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run recorded with --wire.")
    ],
    *,
    json: Json = False,
    top: Annotated[int, typer.Option(min=1, help="Links that are listed.")] = 20,
) -> None:
    """Show what went over the wire: links, collectives, and what is missing."""
    if not run.is_dir():
        raise InputError(
            f"{run} is not a run's folder", remedy="give what `augury run --wire` wrote"
        )
    import_numpy()
    trace = _trace(run)
    from augury.ingest.wire.read_wire import read_wire
    from augury.report.wire_summary import summarize_wire

    with working("reading what went over the wire"):
        result = summarize_wire(read_wire(run, trace), trace)
    if json:
        from augury.report.as_json import encode

        print(encode(result))
        return
    from augury.report.wire_terminal import render_wire

    render_wire(result, sys.stdout, name=run.name, top=top)
    if trace is not None:
        next_command("replay", run, "--fine")


def _trace(run: Path) -> Trace | None:
    """None where only the wire was recorded, as of frameworks that are not followed inside."""
    from augury.core.trace.trace_file import RUN_FILE
    from augury.ingest.open_run import open_run

    if not (run / RUN_FILE).exists() and not any(run.glob("rank-*.json")):
        return None
    with working(f"reading {run}"):
        return open_run(run)
