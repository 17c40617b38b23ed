"""Options that several verbs have, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

GraphPath = Annotated[
    Path,
    typer.Argument(metavar="RUN|GRAPH", help="A recorded run's folder, or a graph (.augury)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
MaxBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Refuse what unpacks to more than this.",
        show_default="2GiB for a graph, 16GiB for a run",
    ),
]
MaxEvents = Annotated[
    int, typer.Option(min=1, help="Cut a timeline after this many events, and say so.")
]
Engine = Annotated[
    Literal["auto", "native", "reference"],
    typer.Option(help="The C++ kernel, its Python reference, or whichever there is."),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Of every link: 0.5x, or a rate such as 10Gbit/s."),
]
Latency = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of every link: 0.5x, or so much more, such as +50us."),
]
Collectives = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN|FILE",
        help="Timed collectives: a run recorded with --calibrate, nccl-tests' output, a CSV.",
    ),
]
NoFold = Annotated[bool, typer.Option("--no-fold", help="Simulate identical ranks one by one.")]
