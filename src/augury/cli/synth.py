"""``augury synth`` generates a synthetic training run as a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.files import ensure_writable
from augury.core.units import format_count


def synth(
    *,
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FILE", help="Write the graph to this file (.augury)."),
    ],
    model: Annotated[
        Literal["conv", "transformer", "uniform"], typer.Option(help="Shape of the model's layers.")
    ] = "conv",
    layers: Annotated[int, typer.Option(min=1, help="Number of layers.")] = 16,
    parameters: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of all parameters.")
    ] = "100MB",
    activations: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of all activations that backward needs.")
    ] = "1GB",
    forward: Annotated[
        str, typer.Option(metavar="TIME", help="Duration of one forward pass.")
    ] = "30ms",
    backward: Annotated[
        str, typer.Option(metavar="TIME", help="Duration of one backward pass.")
    ] = "60ms",
    scheme: Annotated[
        Literal["allreduce", "ps", "pipeline"], typer.Option(help="How ranks train together.")
    ] = "allreduce",
    algorithm: Annotated[
        Literal["gang", "gang-tree", "gang-two-level", "ring", "tree", "two-level"],
        typer.Option(
            help="All-reduce algorithm: one operation per rank (gang...) or all messages."
        ),
    ] = "gang",
    bucket: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of a bucket of gradients.")
    ] = "25MiB",
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Number of training processes.", show_default="8")
    ] = None,
    ranks_per_host: Annotated[
        int | None, typer.Option(min=1, help="Number of ranks on each host.", show_default="1")
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Bandwidth between hosts.", show_default="10Gbit/s"),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="Latency between hosts.", show_default="20us")
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read the last four options from a TOML file."),
    ] = None,
    servers: Annotated[int, typer.Option(min=1, help="With ps: number of parameter servers.")] = 2,
    partition: Annotated[
        str, typer.Option(metavar="SIZE", help="With ps: size of a message.")
    ] = "4MB",
    stages: Annotated[
        int | None,
        typer.Option(min=1, help="With pipeline: number of stages.", show_default="ranks"),
    ] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of micro-batches per step.",
            show_default="1; with pipeline 2 per stage",
        ),
    ] = None,
    schedule: Annotated[
        Literal["gpipe", "1f1b"], typer.Option(help="With pipeline: order of the micro-batches.")
    ] = "1f1b",
    barrier: Annotated[
        bool, typer.Option(help="Finish all gradients and updates before the next forward pass.")
    ] = True,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps in the graph.")] = 1,
    jitter: Annotated[
        float, typer.Option(min=0, help="Sigma of the log-normal noise on compute times.")
    ] = 0.0,
    straggler: Annotated[
        list[str] | None,
        typer.Option(metavar="RANK:FACTOR", help="Slow down the compute of a rank; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Generate a synthetic training run as a graph."""
    ensure_writable(out, force=force)
    import_numpy()
    from augury import api

    with working(f"generating {out}"):
        graph = api.synth(
            out,
            cluster=cluster,
            ranks=ranks,
            ranks_per_host=ranks_per_host,
            bandwidth=bandwidth,
            latency=latency,
            model=model,
            layers=layers,
            parameters=parameters,
            activations=activations,
            forward=forward,
            backward=backward,
            scheme=scheme,
            algorithm=algorithm,
            bucket=bucket,
            servers=servers,
            partition=partition,
            stages=stages,
            micro_batches=micro_batches,
            schedule=schedule,
            barrier=barrier,
            steps=steps,
            jitter=jitter,
            straggler=straggler or (),
            seed=seed,
            force=force,
        )
    facts: dict[str, Any] = {
        "num_ranks": graph.num_ranks,
        "num_servers": len(graph.ranks) - graph.num_ranks,
        "num_ops": graph.num_ops,
        "num_steps": graph.num_steps,
    }
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(path=str(out), **facts))
        return
    say(
        f"wrote {out}: {model} model of {format_count(layers, 'layer')}, {scheme},"
        f" {format_count(graph.num_ranks, 'rank')}, {format_count(graph.num_ops, 'operation')}"
    )
    next_command("replay", out)
