"""``augury whatif``: what a change would do to a recorded run, before anybody makes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.graphs import (
    import_numpy,
    predicted_interval,
    read_calibrated,
    replay_changed,
    replay_graph,
    representation_of,
    warnings_of,
)
from augury.cli.options import (
    Bandwidth,
    Engine,
    Json,
    Latency,
    MaxBytes,
)
from augury.cli.say import next_command
from augury.core.errors import UsageError


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
    """Foretell what a change would do; changes combine."""
    import_numpy()
    from augury.predict import changes

    wanted = [
        # In this order: buckets are chosen for the ranks that there are.
        *([changes.ranks(ranks)] if ranks is not None else []),
        *([changes.buckets(bucket_mb)] if bucket_mb is not None else []),
        *([changes.bandwidth(bandwidth)] if bandwidth is not None else []),
        *(changes.link_bandwidth(text) for text in link_bandwidth or []),
        *([changes.latency(latency)] if latency is not None else []),
        *([changes.no_straggler()] if no_straggler else []),
        *(changes.compute_scale(text) for text in compute_scale or []),
        *([changes.perfect_overlap()] if perfect_overlap else []),
    ]
    from augury.cli.fine import read_fine
    from augury.passes.protocol import Scene

    topology = changes.topology_of(algorithm, ring_order, half_duplex)
    is_fine = fine or topology is not None or bool(link_bandwidth)
    if not wanted and topology is None:
        raise UsageError("no change is named", remedy="name one, such as --bandwidth 2x")
    if is_fine:
        recorded = read_fine(run, max_bytes=max_bytes)
        wanted.append(changes.expanded(topology))
        before, scene = replay_graph(recorded.expanded(), engine=engine), recorded.scene()
    else:
        graph, calibration = read_calibrated(run, max_bytes=max_bytes)
        before, scene = replay_graph(graph, engine=engine), Scene.recorded(graph, calibration)
    changed = changes.apply_all(scene, wanted).scene.graph
    after = replay_changed(changed.evolve(measured=changed.measured.empty()), engine=engine)
    from augury.report.summarize import summarize_change

    run_before = representation_of(before)
    result = summarize_change(
        after,
        baseline=before,
        changes=changes.words_of(wanted),
        interval_ns=predicted_interval(
            after, run_before, model_error=changes.error_of(wanted).relative
        ),
        ledger=warnings_of(run_before),
    )
    if json:
        from augury.report.as_json import encode

        print(encode(result))
        return
    from augury.report.whatif import render_change

    render_change(result, sys.stdout, name=run.name)
    next_command("replay", run)
