"""Checks that every strategy computes the same as one process: runs as a rank; rank 0 prints the
difference of each strategy as JSON."""

from __future__ import annotations

import argparse
import json
import sys

import torch
import torch.distributed as dist

from benchmarks.testbed.strategies.cnns import CNNS
from benchmarks.testbed.strategies.equal import differences
from benchmarks.testbed.strategies.groups import Mesh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", choices=tuple(CNNS), default="tiny")
    cnn = CNNS[parser.parse_args().cnn]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = differences(cnn, Mesh.of_world(), range(dist.get_world_size()))
    if dist.get_rank() == 0:
        json.dump(found, sys.stdout)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
