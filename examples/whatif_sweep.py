"""Predicts the step of a recorded run for several bandwidths and bucket sizes.

python examples/whatif_sweep.py [RUN]

RUN is a folder that `augury run` wrote; by default a small one that is kept for the tests.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import augury
from augury.core.errors import AuguryError

RECORDED = Path(__file__).parents[1] / "tests/golden/runs/mlp-2"
BANDWIDTHS = ("0.5x", "1x", "2x", "4x")  # of the recorded network
BUCKETS_MB = (0.1, 1, 25)  # DDP's bucket_cap_mb
MS = 1_000_000  # nanoseconds


def print_sweep(run: augury.Run) -> None:
    """Prints the replayed step beside the measured one, then a table of predictions."""
    replayed = run.replay()
    low, high = (bound / MS for bound in replayed.interval_ns)
    print(f"{run.path.name}: {len(run.ranks)} ranks, {run.graph.num_ops} operations")
    print(f"predicted step {replayed.predicted_step_ns / MS:.2f} ms, from {low:.2f} to {high:.2f}")
    if run.measured_step_ns is not None:
        print(f"measured step  {run.measured_step_ns / MS:.2f} ms")
    for warning in run.warnings:
        print(f"warning: {warning.meaning}")

    print()
    print("predicted step in ms, by bandwidth and bucket size")
    print("bandwidth" + "".join(f"{size:>8} MB" for size in BUCKETS_MB))
    for bandwidth in BANDWIDTHS:
        # Changes combine: each cell is one replay of a graph with both of them.
        changes = [run.whatif(bandwidth=bandwidth, bucket_mb=size) for size in BUCKETS_MB]
        steps = "".join(f"{change.predicted_step_ns / MS:11.2f}" for change in changes)
        print(f"{bandwidth:>9}{steps}")


# Opening a run writes caches into its folder, so the kept run is copied first.
with tempfile.TemporaryDirectory() as scratch:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    else:
        folder = shutil.copytree(RECORDED, Path(scratch) / RECORDED.name)
    try:
        print_sweep(augury.open(folder))
    except AuguryError as error:  # such as a folder that is not a run
        sys.exit(f"{error.cause}; {error.remedy}")
