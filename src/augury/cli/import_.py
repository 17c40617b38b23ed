"""``augury import`` reads traces of other profilers as a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.options import Address, Force, Jobs, Json, MaxBytes, Workers
from augury.cli.progress import working
from augury.cli.say import next_command


def import_(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE...",
            help="Traces of all ranks, or folders or zip archives of them.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="RUN", help="Write the run to this folder.")
    ],
    clocks: Annotated[
        str,
        typer.Option(
            metavar="auto|collectives",
            help="Source of the clock offsets between ranks.",
        ),
    ] = "auto",
    force: Force = False,
    max_bytes: MaxBytes = None,
    engine: Workers = "processes",
    address: Address = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Read traces of all ranks: align clocks, match collectives, count anomalies.

    Formats are recognized by content: traces of PyTorch's profiler, execution traces, a Horovod
    timeline, a table of operations.
    """
    from augury.api import import_traces

    answer = import_traces(
        traces,
        out,
        clocks=clocks,
        max_bytes=max_bytes,
        force=force,
        engine=engine,
        address=address,
        jobs=jobs,
        progress=working,
    )
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout)
    next_command("diagnose", out)
