"""``augury oracle``: parallel strategies and numbers of devices compared, before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from augury.cli import options
from augury.cli.progress import working
from augury.cli.say import next_command, say_written
from augury.core.files import ensure_writable
from augury.report.exports import check_targets
from augury.report.formats import PAGE_SUFFIXES, PLOT_SUFFIXES


def oracle(
    *,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|MODULE:FACTORY|FILE.json",
            help="resnet50, resnet152, vgg16, cosmoflow, your own factory, or a model file.",
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml", help="abci, v100, a100, h100, mi300x, cpu, or a description."
        ),
    ],
    collectives: options.Collectives = None,
    devices: Annotated[
        str,
        typer.Option(
            metavar="N:M|N,M,...", help="Numbers of devices: a range in doublings, or a list."
        ),
    ] = "4:1024",
    global_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Samples per step of all devices together.")
    ] = None,
    batch_per_device: Annotated[
        int | None, typer.Option(metavar="N", help="Samples per step of each device.")
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="SHAPE", help="Shape of one sample, as 3x224x224; once per input."),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Recorded run of the model, for measured times of layers."
        ),
    ] = None,
    times_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples per rank and step of that run.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, metavar="D", help="Samples of an epoch, for its time and cost."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAMES", help="all, or a list: data,zero3,data_filter.")
    ] = "all",
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory limit per device; by default all it has."),
    ] = None,
    precision: options.Precision = "fp32",
    optimizer: Annotated[
        Literal["sgd", "momentum", "adam"],
        typer.Option(help="Determines the size of the optimizer state."),
    ] = "momentum",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Recompute activations in backward.")
    ] = False,
    overlap: options.Overlap = 0.0,
    group: options.Group = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Micro-batches of a pipeline; by default 4 per stage."
        ),
    ] = None,
    schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved"], typer.Option(help="Schedule of a pipeline.")
    ] = "1f1b",
    chunks: Annotated[
        int,
        typer.Option(
            min=2, max=64, metavar="N", help="Stages per device with --schedule interleaved."
        ),
    ] = 2,
    constants: Annotated[
        str,
        typer.Option(
            metavar="published|bare|FILE.json",
            help="Corrections of the equations: fitted constants, or none (bare).",
        ),
    ] = "published",
    fidelity: Annotated[
        Literal["closed", "replay"],
        typer.Option(help="Step times from closed forms, or from replaying graphs."),
    ] = "closed",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Write the graph of one configuration (.augury)."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Plot time, efficiency and memory by strategy."),
    ] = None,
    page: options.Page = None,
    engine: options.Workers = "processes",
    address: options.Address = None,
    jobs: options.Jobs = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict time and memory of each parallel strategy at each scale."""
    check_targets((plot, PLOT_SUFFIXES), (page, PAGE_SUFFIXES), force=force)
    if out is not None:
        ensure_writable(out, force=force)
    from augury import api
    from augury.core.units import parse_bytes
    from augury.oracle.sweep_result import require_feasible

    answer = api.oracle(
        model,
        cluster,
        devices=devices,
        global_batch=global_batch,
        batch_per_device=batch_per_device,
        input_shapes=input_shape or [],
        times=times,
        times_batch=times_batch,
        collectives=collectives,
        samples=samples,
        strategies=strategy,
        memory_limit_bytes=parse_bytes(memory) if memory is not None else None,
        precision=precision,
        optimizer=optimizer,
        recompute=recompute,
        overlap=overlap,
        group=group,
        micro_batches=micro_batches,
        schedule=schedule,
        chunks=chunks,
        constants=constants,
        fidelity=fidelity,
        one_configuration=out is not None,
        engine=engine,
        address=address,
        jobs=jobs,
        progress=working,
    )
    if not json:
        answer.render(sys.stdout)
    require_feasible(answer.result)
    if out is not None:
        answer.save_graph(out, force=force)
    if plot is not None:
        answer.save_plot(plot, force=force)
    if page is not None:
        answer.save_page(page, force=force)
    if json:
        print(answer.to_json())
        return
    say_written(plot, page, out)
    if out is not None:
        next_command("replay", out)
    else:
        next_command("validate", "oracle", "--measured", "MEASURED.csv", "--cluster", cluster)
