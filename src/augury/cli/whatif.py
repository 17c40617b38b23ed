"""``augury whatif`` predicts what changes would do to a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Bandwidth, Engine, Json, Latency, MaxBytes
from augury.cli.progress import working
from augury.cli.say import next_command


def whatif(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN|GRAPH", help="A recorded run's folder, or a graph (.augury)."),
    ],
    *,
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="So many ranks, each with the batch it has.")
    ] = None,
    bucket_mb: Annotated[
        str | None,
        typer.Option(metavar="MIB", help="DDP's buckets: one cap, or one after the other: 1,5,25."),
    ] = None,
    compute_scale: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACTOR", help="Compute takes so much longer: 1.5, or 1:1.5 (rank 1)."
        ),
    ] = None,
    no_straggler: Annotated[
        bool, typer.Option("--no-straggler", help="All ranks as fast as the fastest.")
    ] = False,
    perfect_overlap: Annotated[
        bool, typer.Option("--perfect-overlap", help="Nothing waits for communication.")
    ] = False,
    fine: Annotated[
        bool,
        typer.Option("--fine", help="With collectives as sends on links, from what --wire saw."),
    ] = False,
    link_bandwidth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANK:RATE",
            help="Of one rank's link: 1:0.5x, 1.out:0.5x, 1.in:10Gbit/s. Fine.",
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="ring, tree or halving-doubling. Fine."),
    ] = None,
    ring_order: Annotated[
        str | None, typer.Option(metavar="RANKS", help="The ring's order: 0,2,1,3. Fine.")
    ] = None,
    half_duplex: Annotated[
        bool,
        typer.Option("--half-duplex", help="Links send or receive, not both at once. Fine."),
    ] = False,
    engine: Engine = "auto",
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Predict what changes would do; changes combine."""
    import_numpy()
    from augury import api

    answer = api.open(run, max_bytes=max_bytes, progress=working).whatif(
        bandwidth=bandwidth,
        latency=latency,
        ranks=ranks,
        bucket_mb=bucket_mb,
        compute_scale=compute_scale,
        no_straggler=no_straggler,
        perfect_overlap=perfect_overlap,
        fine=fine,
        link_bandwidth=link_bandwidth,
        algorithm=algorithm,
        ring_order=ring_order,
        half_duplex=half_duplex,
        engine=engine,
    )
    if json:
        print(answer.to_json())
        return
    answer.render(sys.stdout)
    next_command("replay", run)
