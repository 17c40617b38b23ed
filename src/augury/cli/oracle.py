"""``augury oracle``: which parallel strategy, on how many devices, before there is a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from augury.cli.options import Collectives, Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import UsageError
from augury.core.files import ensure_writable, new_file
from augury.report.exports import check_target

if TYPE_CHECKING:
    from augury.oracle.cluster.cluster import Machine
    from augury.oracle.fitting.corrections import Constants


def oracle(
    *,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|MODULE:FACTORY|FILE.json",
            help="resnet50, resnet152, vgg16, cosmoflow, your own, or a model's file.",
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml", help="abci, v100, a100, h100, mi300x, cpu, or a description."
        ),
    ],
    collectives: Collectives = None,
    devices: Annotated[
        str,
        typer.Option(metavar="N:M|N,M,...", help="From one to the other in doublings, or listed."),
    ] = "4:1024",
    global_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Samples of a step, of all devices together.")
    ] = None,
    batch_per_device: Annotated[
        int | None, typer.Option(metavar="N", help="Samples of a step for every device.")
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="SHAPE", help="Of one sample, as 3x224x224; for every input."),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A recorded run of the model: its layers' times."),
    ] = None,
    times_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples of a rank in a step of it.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="D", help="Of an epoch: tells its time and cost.")
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAMES", help="all, or some: data,zero3,data_filter.")
    ] = "all",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of a device; by default what it has.")
    ] = None,
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16"], typer.Option(help="Of compute and activations.")
    ] = "fp32",
    optimizer: Annotated[
        Literal["sgd", "momentum", "adam"], typer.Option(help="Tells what state is held.")
    ] = "momentum",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Make activations again in backward.")
    ] = False,
    overlap: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of backward that gradients may hide behind."),
    ] = 0.0,
    group: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Devices in a group of hybrids; by default a node."),
    ] = None,
    micro_batches: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of a pipeline; by default 4 a stage.")
    ] = None,
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved"], typer.Option(help="Of a pipeline.")
    ] = "1f1b",
    chunks: Annotated[
        int, typer.Option(min=2, max=64, metavar="N", help="Interleaved: stages a device has.")
    ] = 2,
    constants: Annotated[
        str,
        typer.Option(
            metavar="published|bare|FILE.json",
            help="What the equations are corrected by: fitted constants, or nothing.",
        ),
    ] = "published",
    fidelity: Annotated[
        Literal["closed", "replay"],
        typer.Option(help="Of steps: closed forms, or the graph of each replayed."),
    ] = "closed",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Write the graph of one configuration (.augury)."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Draw time, efficiency and memory by strategy."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Foretell time and memory of every parallel strategy at every scale."""
    if plot is not None:
        check_target(plot, (".svg",), force=force)
    if out is not None:
        ensure_writable(out, force=force)
    from augury.core.units import parse_bytes
    from augury.oracle.cluster.device import Precision
    from augury.oracle.layer_costs import LayerWork
    from augury.oracle.memory import Optimizer
    from augury.oracle.model_reader.model_from_run import with_times
    from augury.oracle.model_reader.read_model import load_model
    from augury.oracle.strategies.registry import STRATEGIES, find_strategy
    from augury.oracle.strategy import Options
    from augury.oracle.sweep import Batch, parse_devices, sweep

    batch = Batch(total=global_batch, per_device=batch_per_device)
    numbers = parse_devices(devices)
    chosen = (
        list(STRATEGIES)
        if strategy == "all"
        else [find_strategy(name) for name in dict.fromkeys(strategy.split(","))]
    )
    if out is not None and len(chosen) * len(numbers) != 1:
        raise UsageError(
            "a graph is of one configuration",
            remedy="name one --strategy and one number of --devices",
        )
    limit_bytes = parse_bytes(memory) if memory is not None else None
    machine = measured_machine(cluster, collectives)
    known = find_constants(constants)
    machine.device.flops(Precision(precision))
    with working(f"reading {model}"):
        found = load_model(model, input_shapes=input_shape or [])
        found = with_times(found, times, times_batch)
    copies = Optimizer(optimizer).state_items
    work = LayerWork.of(found, machine.device, Precision(precision), optimizer_copies=copies)
    options = Options(
        group=group,
        micro_batches=micro_batches,
        schedule=schedule,
        chunks=chunks,
        overlap=overlap,
        recompute=recompute,
        optimizer_copies=copies,
        is_bare=constants == "bare",
    )
    judged = sweep(
        work,
        machine,
        devices=numbers,
        batch=batch,
        strategies=chosen,
        constants=known,
        options=options,
        memory_limit_bytes=limit_bytes,
    )
    from augury.cli.oracle_result import refuse_if_nothing_fits, result_of

    notes: list[str] = []
    if fidelity == "replay":
        from augury.oracle.graphs.replay_sweep import replay_each

        with working(f"replaying {len(chosen) * len(numbers)} configurations"):
            judged, notes = replay_each(judged, chosen)
    result = result_of(judged, samples=samples, notes=notes)
    if result.recommended is not None:
        if out is not None:
            from augury.core.graph.graph_file import save_graph
            from augury.oracle.graphs.registry import graph_of

            save_graph(graph_of(chosen[0], judged[0].case, whole=True), out, force=force)
        if plot is not None:
            from augury.report.oracle_plot import oracle_svg

            with new_file(plot, force=force) as file:
                file.write(oracle_svg(result).encode("utf-8"))
    if json:
        refuse_if_nothing_fits(result)
        from augury.report.as_json import encode

        print(encode(result))
        return
    from augury.report.oracle import render_oracle

    render_oracle(result, sys.stdout)
    refuse_if_nothing_fits(result)
    if plot is not None:
        say(f"wrote {plot}")
    if out is not None:
        say(f"wrote {out}")
        next_command("replay", out)
        return
    next_command("validate", "oracle", "--measured", "MEASURED.csv", "--cluster", cluster)


def measured_machine(cluster: str, collectives: Path | None) -> Machine:
    """With its levels as fast as collectives were timed on them."""
    from augury.oracle.cluster.cluster_file import find_machine
    from augury.oracle.cluster.cluster_fit import read_timings, timings_of, with_timings

    machine = find_machine(cluster)
    if collectives is None:
        return machine
    if collectives.is_dir():
        from augury.ingest.open_run import open_run

        return with_timings(machine, timings_of(open_run(collectives)))
    return with_timings(machine, read_timings(collectives))


def find_constants(name: str) -> Constants:
    from augury.oracle.fitting.corrections import BARE, load_constants
    from augury.oracle.fitting.fit_published import PUBLISHED

    if name == "bare":
        return BARE
    return PUBLISHED if name == "published" else load_constants(Path(name))
