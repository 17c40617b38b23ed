"""A Ray or Dask cluster of two workers in processes of its own.

    python -m tests.executor.local_cluster ray

It prints its address, and ends when its standard input is closed.
"""

from __future__ import annotations

import os
import sys

NUM_WORKERS = 2
OBJECT_STORE_BYTES = 100 << 20
"""The least that Ray accepts is 75 MB; by default it takes a third of the memory."""


def serve_ray() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    context = ray.init(
        num_cpus=NUM_WORKERS, object_store_memory=OBJECT_STORE_BYTES, include_dashboard=False
    )
    print(context.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


def serve_dask() -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=NUM_WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    {"ray": serve_ray, "dask": serve_dask}[sys.argv[1]]()
