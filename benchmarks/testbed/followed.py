"""Training under a plan or with stock DDP that reports its parameters, the runtime's overhead, and
the step in which a better plan was searched for. With ``--signs``, rank 0 creates a file
``reached`` there after a given step, and records the first step that finds ``answered``."""

from __future__ import annotations

import argparse
import json
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from augury.core.plan.plan_board import board
from benchmarks.testbed.models import WORKLOADS
from benchmarks.testbed.train import Configuration, Trainer, numbers


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout))
    trainer = Trainer(options)
    trainer.configure(Configuration(caps=options.cap, plan=options.plan))
    answered = planned_anew = None
    num_before = 0
    for step in range(1, options.steps + 1):
        trainer.train(1)
        if options.signs is not None and dist.get_rank() == 0:
            if step == options.sign_at:
                (options.signs / "reached").touch()
            if answered is None and (options.signs / "answered").exists():
                answered, num_before = step, _num_searches()
        if answered is not None and planned_anew is None and _num_searches() > num_before:
            planned_anew = step
    if trainer.schedule is not None:
        trainer.schedule.flush()
    if dist.get_rank() == 0:
        torch.save([parameter.detach() for parameter in trainer.module.parameters()], options.out)
        options.out.with_suffix(".json").write_text(
            json.dumps(
                {
                    "answered": answered,
                    "planned_anew": planned_anew,
                    "own_share": trainer.schedule.own_share if trainer.schedule else None,
                }
            )
        )
    dist.barrier()
    dist.destroy_process_group()


def _num_searches() -> int:
    return len(board.status.replans) if board.status is not None else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=WORKLOADS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch-scale", type=float, default=1.0)
    parser.add_argument("--cap", type=numbers, default=(), help="bucket caps in MB")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--replan", action="store_true")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="timeout of the process group in s"
    )
    parser.add_argument("--signs", type=Path, help="folder for the signal files")
    parser.add_argument("--sign-at", type=int, default=0, help="step after which to signal")
    parser.add_argument("--out", type=Path, required=True, help="file for rank 0's parameters")
    parser.set_defaults(sharded=False, compile=False)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
