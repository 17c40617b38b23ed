"""Cluster of a preset or a file, with its levels fitted to timed collectives."""

from __future__ import annotations

import os
from pathlib import Path

from augury.core.cluster.cluster import Cluster
from augury.core.cluster.cluster_file import find_cluster
from augury.costs.cluster_fit import read_timings, timings_of, with_timings
from augury.ingest.open_run import open_run


def measured_cluster(
    cluster: str | os.PathLike[str] | Cluster, collectives: Path | None = None
) -> Cluster:
    """Returns the cluster; ``collectives`` is a run recorded with ``--calibrate``, the output of
    nccl-tests or a CSV."""
    found = cluster if isinstance(cluster, Cluster) else find_cluster(cluster)
    if collectives is None:
        return found
    if collectives.is_dir():
        return with_timings(found, timings_of(open_run(collectives)))
    return with_timings(found, read_timings(collectives))
