"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from augury.executor import EngineName

GraphPath = Annotated[
    Path,
    typer.Argument(metavar="RUN|GRAPH", help="A recorded run's folder, or a graph (.augury)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Page = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Write the result as a page of HTML.")
]
MaxBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Refuse input that unpacks to more than this.",
        show_default="2GiB for a graph, 16GiB for a run",
    ),
]
MaxEvents = Annotated[
    int, typer.Option(min=1, help="Cut a timeline after this many events, with a note.")
]
Engine = Annotated[
    Literal["auto", "native", "reference"],
    typer.Option(help="Replay with the C++ kernel, the Python reference, or the best available."),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="RATE", help="Change the bandwidth of all links: 0.5x, or a rate such as 10Gbit/s."
    ),
]
Latency = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Change the latency of all links: 0.5x, or an increase such as +50us."
    ),
]
Collectives = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN|FILE",
        help="Timed collectives: a run recorded with --calibrate, output of nccl-tests, or a CSV.",
    ),
]
Precision = Annotated[
    Literal["fp32", "tf32", "fp16", "bf16"],
    typer.Option(help="Precision of compute and activations."),
]
Overlap = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="Share of backward that the exchange of gradients may overlap."
    ),
]
Group = Annotated[
    int | None,
    typer.Option(min=2, metavar="N", help="Devices per group of a hybrid; by default a host."),
]
Fine = Annotated[
    bool, typer.Option("--fine", help="Replay collectives as sends on links, as --wire saw them.")
]
Workers = Annotated[
    EngineName, typer.Option("--engine", help="Where wide work runs; ray and dask are clusters.")
]
Address = Annotated[str | None, typer.Option(help="With ray or dask: address of the cluster.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Workers; by default one per core.")
]
NoFold = Annotated[bool, typer.Option("--no-fold", help="Replay identical ranks one by one.")]
