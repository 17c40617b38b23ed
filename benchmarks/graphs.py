"""Synthetic data-parallel training graphs of a given size, for replay benchmarks."""

from __future__ import annotations

from typing import Any

from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.cluster.cluster import Cluster, Link
from augury.core.graph.graph import Graph
from augury.replay.unroll import unroll

NETWORK = Link(latency_ns=15_000, bandwidth_bytes_per_s=10_000_000_000, overhead_ns=2_000)
STYLES = ("buckets", "ring")
"""All-reduce of each bucket as one gang, or expanded into every send and receive of a ring."""


def training(style: str, num_ops: int, *, num_ranks: int = 8) -> Graph:
    """Builds consecutive steps with about ``num_ops`` operations in total; durations
    vary by 5 %."""
    window = synthesize(_job(style, num_ranks=num_ranks, jitter=0.05))
    return unroll(window, max(1, round(num_ops / window.num_ops)))


def many_ranks(style: str, num_ranks: int, num_classes: int) -> Graph:
    """Builds a graph in which ranks of the same class (rank modulo ``num_classes``) are identical.
    ``buckets``: gangs of a large model's buckets over three steps. ``ring``: one bucket's ring with
    four million transfers."""
    slower = tuple(
        (rank, 1 + rank % num_classes / 100) for rank in range(num_ranks) if rank % num_classes
    )
    is_ring = style == "ring"
    layers = conv_layers(ModelSize(num_layers=16 if is_ring else 160))
    return synthesize(
        _job(
            style,
            num_ranks=num_ranks,
            stragglers=slower,
            layers=layers,
            bucket_bytes=10**10 if is_ring else 5 << 20,
            num_steps=1 if is_ring else 3,
        )
    )


def _job(style: str, *, num_ranks: int, **options: Any) -> SyntheticJob:
    return SyntheticJob(
        cluster=Cluster.of_hosts(
            num_hosts=num_ranks, ranks_per_host=1, intra=NETWORK, inter=NETWORK
        ),
        algorithm="gang" if style == "buckets" else "ring",
        seed=1,
        **options,
    )
