"""Makes a synthetic job from options with units, such as ``"25MiB"`` and ``"10Gbit/s"``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from augury.build.pipeline_order import PipelineSchedule
from augury.build.synthetic.job import NOMINAL_CLUSTER, PARAMETER_SERVER, SyntheticJob
from augury.build.synthetic.layers import MODELS, ModelSize
from augury.core.cluster.cluster import Cluster, Link
from augury.core.cluster.cluster_file import load_cluster
from augury.core.errors import UsageError
from augury.core.units import parse_bandwidth, parse_bytes, parse_time_ns

DEFAULT_RANKS = 8


def make_synthetic_job(
    *,
    cluster: Cluster,
    model: str = "conv",
    layers: int = 16,
    parameters: str = "100MB",
    activations: str = "1GB",
    forward: str = "30ms",
    backward: str = "60ms",
    scheme: str = "allreduce",
    algorithm: str = "gang",
    bucket: str = "25MiB",
    servers: int = 2,
    partition: str = "4MB",
    stages: int | None = None,
    micro_batches: int | None = None,
    schedule: str = "1f1b",
    barrier: bool = True,
    steps: int = 1,
    jitter: float = 0.0,
    straggler: Sequence[str] = (),
    seed: int = 0,
) -> SyntheticJob:
    """The options are those of ``augury synth``; ``choose_cluster`` makes the cluster."""
    is_pipeline = scheme == "pipeline"
    num_stages = (stages or cluster.num_devices) if is_pipeline else 1
    size = ModelSize(
        num_layers=layers,
        parameter_bytes=parse_bytes(parameters),
        saved_bytes=parse_bytes(activations),
        forward_ns=parse_time_ns(forward),
        backward_ns=parse_time_ns(backward),
    )
    return SyntheticJob(
        layers=MODELS[model](size, seed=seed),
        cluster=cluster,
        algorithm=PARAMETER_SERVER if scheme == "ps" else algorithm,
        bucket_bytes=parse_bytes(bucket),
        num_servers=servers,
        partition_bytes=parse_bytes(partition),
        num_stages=num_stages,
        num_micro_batches=micro_batches or (2 * num_stages if is_pipeline else 1),
        schedule=PipelineSchedule(schedule),
        has_barrier=barrier,
        num_steps=steps,
        jitter=jitter,
        stragglers=tuple(map(_parse_straggler, straggler)),
        seed=seed,
    )


def choose_cluster(
    path: Path | None = None,
    *,
    ranks: int | None = None,
    ranks_per_host: int | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
) -> Cluster:
    """Reads a cluster file, or makes a cluster from the other options."""
    if path is not None:
        if any(option is not None for option in (ranks, ranks_per_host, bandwidth, latency)):
            raise UsageError(
                "--cluster already states the number of ranks and their links",
                remedy="leave out --ranks, --ranks-per-host, --bandwidth and --latency",
            )
        return load_cluster(path)
    ranks = ranks or DEFAULT_RANKS
    per_host = ranks_per_host or 1
    if ranks % per_host:
        raise UsageError(
            f"{ranks} ranks cannot be divided among hosts of {per_host}",
            remedy="choose a --ranks-per-host that divides --ranks",
        )
    return Cluster.of_hosts(
        num_hosts=ranks // per_host,
        ranks_per_host=per_host,
        intra=NOMINAL_CLUSTER.levels[0],
        inter=Link(
            latency_ns=parse_time_ns(latency or "20us"),
            bandwidth_bytes_per_s=parse_bandwidth(bandwidth or "10Gbit/s"),
        ),
    )


def _parse_straggler(text: str) -> tuple[int, float]:
    rank, _, factor = text.partition(":")
    try:
        return int(rank), float(factor)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a straggler", remedy="write rank and factor, such as 3:1.5"
        ) from error
