"""``augury wire`` shows the recorded TCP traffic of a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Json
from augury.cli.progress import working
from augury.cli.say import next_command


def wire(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run recorded with --wire.")
    ],
    *,
    json: Json = False,
    top: Annotated[int, typer.Option(min=1, help="List at most this many links.")] = 20,
) -> None:
    """Show TCP traffic: links, collectives, and gaps in the recording."""
    import_numpy()
    from augury.answers import WireAnswer
    from augury.predict.wire_summary import has_trace, summarize_recorded_wire

    answer = WireAnswer(summarize_recorded_wire(run, progress=working), run.name)
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout, top=top)
    if has_trace(run):
        next_command("replay", run, "--fine")
