"""``augury synth``: a made-up training run as a graph, without the hardware for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import UsageError
from augury.core.files import ensure_writable
from augury.core.units import parse_bandwidth, parse_bytes, parse_time_ns

if TYPE_CHECKING:
    from augury.core.cluster import Cluster

_DEFAULT_RANKS = 8


def synth(
    *,
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FILE", help="The graph to write (.augury)."),
    ],
    model: Annotated[
        Literal["conv", "transformer", "uniform"], typer.Option(help="Shape of the layers.")
    ] = "conv",
    layers: Annotated[int, typer.Option(min=1, help="How many layers.")] = 16,
    parameters: Annotated[str, typer.Option(metavar="SIZE", help="All parameters.")] = "100MB",
    activations: Annotated[
        str, typer.Option(metavar="SIZE", help="All that backward needs again.")
    ] = "1GB",
    forward: Annotated[str, typer.Option(metavar="TIME", help="One whole forward.")] = "30ms",
    backward: Annotated[str, typer.Option(metavar="TIME", help="One whole backward.")] = "60ms",
    scheme: Annotated[
        Literal["allreduce", "ps", "pipeline"], typer.Option(help="How ranks work together.")
    ] = "allreduce",
    algorithm: Annotated[
        Literal["gang", "gang-tree", "gang-two-level", "ring", "tree", "two-level"],
        typer.Option(help="Of the all-reduce: one operation a rank (gang) or every message."),
    ] = "gang",
    bucket: Annotated[
        str, typer.Option(metavar="SIZE", help="Gradients reduced together.")
    ] = "25MiB",
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Training processes.", show_default="8")
    ] = None,
    ranks_per_host: Annotated[
        int | None, typer.Option(min=1, help="Of them on one host.", show_default="1")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="RATE", help="Between hosts.", show_default="10Gbit/s")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="Between hosts.", show_default="20us")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="All of the last four, from TOML.")
    ] = None,
    servers: Annotated[int, typer.Option(min=1, help="With ps: parameter servers.")] = 2,
    partition: Annotated[
        str, typer.Option(metavar="SIZE", help="With ps: what travels in one piece.")
    ] = "4MB",
    stages: Annotated[
        int | None, typer.Option(min=1, help="With pipeline: stages.", show_default="ranks")
    ] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(min=1, help="In one step.", show_default="1; with pipeline 2 a stage"),
    ] = None,
    schedule: Annotated[
        Literal["gpipe", "1f1b"], typer.Option(help="With pipeline: order of micro-batches.")
    ] = "1f1b",
    barrier: Annotated[
        bool, typer.Option(help="All gradients and updates end before the next forward.")
    ] = True,
    steps: Annotated[int, typer.Option(min=1, help="Steps in the graph.")] = 1,
    jitter: Annotated[
        float, typer.Option(min=0, help="Sigma of the log-normal factor on compute times.")
    ] = 0.0,
    straggler: Annotated[
        list[str] | None,
        typer.Option(metavar="RANK:FACTOR", help="A rank that computes slower; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make up a training run, as a graph."""
    ensure_writable(out, force=force)
    from augury.cli.numpy_threads import import_numpy

    import_numpy()
    from augury.build.pipeline_order import PipelineSchedule
    from augury.build.synthetic.layers import MODELS, ModelSize
    from augury.build.synthetic.training_run import PARAMETER_SERVER, SyntheticJob, synthesize
    from augury.core.graph.graph_file import save_graph

    where = _cluster(cluster, ranks, ranks_per_host, bandwidth, latency)
    num_stages = (stages or where.num_ranks) if scheme == "pipeline" else 1
    size = ModelSize(
        num_layers=layers,
        parameter_bytes=parse_bytes(parameters),
        saved_bytes=parse_bytes(activations),
        forward_ns=parse_time_ns(forward),
        backward_ns=parse_time_ns(backward),
    )
    job = SyntheticJob(
        layers=MODELS[model](size, seed=seed),
        cluster=where,
        algorithm=PARAMETER_SERVER if scheme == "ps" else algorithm,
        bucket_bytes=parse_bytes(bucket),
        num_servers=servers,
        partition_bytes=parse_bytes(partition),
        num_stages=num_stages,
        num_micro_batches=micro_batches or (2 * num_stages if scheme == "pipeline" else 1),
        schedule=PipelineSchedule(schedule),
        has_barrier=barrier,
        num_steps=steps,
        jitter=jitter,
        stragglers=tuple(_straggler(text) for text in straggler or ()),
        seed=seed,
    )
    with working(f"making {out}"):
        graph = synthesize(job)
        save_graph(graph, out, force=force)
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
        f"wrote {out}: {model} model of {layers} layers, {scheme}, {facts['num_ranks']:,} ranks,"
        f" {facts['num_ops']:,} operations"
    )
    next_command("replay", out)


def _cluster(
    path: Path | None,
    ranks: int | None,
    ranks_per_host: int | None,
    bandwidth: str | None,
    latency: str | None,
) -> Cluster:
    from augury.build.synthetic.training_run import NOMINAL_CLUSTER
    from augury.core.cluster import Cluster, Link

    if path is not None:
        if any(option is not None for option in (ranks, ranks_per_host, bandwidth, latency)):
            raise UsageError(
                "--cluster already says how many ranks there are and what links them",
                remedy="leave out --ranks, --ranks-per-host, --bandwidth and --latency",
            )
        return Cluster.load(path)
    ranks = ranks or _DEFAULT_RANKS
    per_host = ranks_per_host or 1
    if ranks % per_host:
        raise UsageError(
            f"{ranks} ranks do not fill hosts of {per_host}",
            remedy="let --ranks-per-host divide --ranks",
        )
    return Cluster(
        num_hosts=ranks // per_host,
        ranks_per_host=per_host,
        intra=NOMINAL_CLUSTER.intra,
        inter=Link(
            latency_ns=parse_time_ns(latency or "20us"),
            bandwidth_bytes_per_s=parse_bandwidth(bandwidth or "10Gbit/s"),
        ),
    )


def _straggler(text: str) -> tuple[int, float]:
    rank, _, factor = text.partition(":")
    try:
        return int(rank), float(factor)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a straggler", remedy="write rank and factor, such as 3:1.5"
        ) from error
