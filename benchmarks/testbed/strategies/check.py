"""Whether every strategy computes what one process does: run as a rank, rank 0 says how far each
is off, as JSON."""

from __future__ import annotations

import argparse
import json
import sys

import torch
import torch.distributed as dist

from benchmarks.testbed.strategies.cnns import CNNS
from benchmarks.testbed.strategies.equal import Reference
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.known import all_strategies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cnn", choices=tuple(CNNS), default="tiny")
    cnn = CNNS[parser.parse_args().cnn]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    reference, mesh = Reference.of(cnn), Mesh.of_world()
    stages = range(dist.get_world_size())
    found = {
        strategy.name: worst_of_all(reference.difference(strategy))
        for strategy in all_strategies(cnn, mesh, stages)
    }
    if dist.get_rank() == 0:
        json.dump(found, sys.stdout)
    dist.destroy_process_group()


def worst_of_all(difference: float) -> float:
    found = torch.tensor(difference)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found)


if __name__ == "__main__":
    main()
