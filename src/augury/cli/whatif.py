"""``augury whatif`` predicts what changes would do to a run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Bandwidth, Engine, Fine, GraphPath, Json, Latency, MaxBytes
from augury.cli.progress import working
from augury.cli.say import next_command


def whatif(
    run: GraphPath,
    *,
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Number of ranks, each with the recorded batch.")
    ] = None,
    bucket_mb: Annotated[
        str | None,
        typer.Option(metavar="MIB", help="Sizes of DDP's buckets: one for all, or a list: 1,5,25."),
    ] = None,
    compute_scale: Annotated[
        list[str] | None,
        typer.Option(metavar="FACTOR", help="Factor on compute time: 1.5, or 1:1.5 for rank 1."),
    ] = None,
    no_straggler: Annotated[
        bool, typer.Option("--no-straggler", help="No rank computes longer than the fastest.")
    ] = False,
    perfect_overlap: Annotated[
        bool, typer.Option("--perfect-overlap", help="No operation waits for communication.")
    ] = False,
    fine: Fine = False,
    link_bandwidth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANK:RATE",
            help="Bandwidth of one link: 1:0.5x, 1.out:0.5x, 1.in:10Gbit/s (fine).",
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="All-reduces by ring, tree or halving-doubling (fine)."),
    ] = None,
    ring_order: Annotated[
        str | None, typer.Option(metavar="RANKS", help="Order of the ring: 0,2,1,3 (fine).")
    ] = None,
    half_duplex: Annotated[
        bool,
        typer.Option("--half-duplex", help="Links send or receive, not both at once (fine)."),
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
