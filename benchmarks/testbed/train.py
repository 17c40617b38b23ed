"""Ordinary data-parallel training, plain or in blocks of several configurations.

First ``--steps`` steps run in the configuration of the options. Then, if ``--blocks`` names changes
to it, each of them runs ``--rounds`` times in turn: the same module and optimizer wrapped anew, a
few warm-up steps, then ``--measured`` steps. The compared configurations are thus interleaved
within one process. With ``--gate``, rank 0 announces each block by a file and waits for the answer,
so that the controller can change the network in between. With ``--told`` the blocks come from there
too: the announcement has the last block's times, the answer the next block's words.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler

import augury
from augury.core.plan.plan_board import board
from augury.core.plan.plan_file import load_plan
from benchmarks.testbed.faults import NO_FAULT, DecodedDataset, Fault
from benchmarks.testbed.models import WORKLOADS, Workload
from benchmarks.testbed.trial import has_trial

if TYPE_CHECKING:
    from augury.core.plan.plan import Plan
    from augury.runtime.torch.training import Scheduled


TRIAL_LOOK = 20
"""Steps between two checks whether a trial has ended."""
MAX_TRIAL_STEPS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of a block. Caps are in MB, several for consecutive buckets, none for DDP's
    defaults. A plan replaces DDP's communication; on trial, the job decides whether to keep it."""

    caps: tuple[float, ...]
    accumulate: int = 1
    plan: Path | None = None
    is_trial: bool = False
    fault: Fault = NO_FAULT

    def changed(self, words: str) -> Configuration:
        """Parses ``cap=1,4,25``, ``accumulate=2``, ``plan=FILE``, ``trial=FILE``, ``fault=none``,
        joined by ``+``; ``default`` is stock DDP, ``base`` changes nothing."""
        new = self
        for word in words.split("+"):
            name, _, value = word.partition("=")
            if name == "cap":
                new = replace(new, caps=numbers(value))
            elif name == "accumulate":
                new = replace(new, accumulate=int(value))
            elif name == "fault":
                new = replace(new, fault=Fault.parse(value))
            elif name in ("plan", "trial"):
                new = replace(new, plan=Path(value), is_trial=name == "trial")
            elif name == "default":
                new = replace(new, caps=())
            elif name != "base":
                raise ValueError(f"cannot change {name!r}")
        return new


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._workload = WORKLOADS[options.model]
        torch.manual_seed(0)
        self.module = self._workload.build()
        self._wrapped: nn.Module = self.module
        if options.sharded:
            for block in self._workload.blocks(self.module):
                fully_shard(block)
            fully_shard(self.module)
        self._optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9)
        self._data, self._batches = batches(self._workload, options.batch_scale)
        self._fault = NO_FAULT
        self._num_steps = 0
        self._accumulate = 1
        self._is_in_sync = False
        self.schedule: Scheduled | None = None
        self.loss = float("nan")

    def configure(self, configuration: Configuration) -> None:
        self._accumulate = configuration.accumulate
        self._inject(configuration.fault)
        if self._options.sharded:
            return
        # Nothing of the last configuration may remain: the runtime removes its hooks, and a deleted
        # wrapper no longer hooks into the module's gradients.
        if self.schedule is not None:
            self.schedule.close()
            self.schedule = None
        self._wrapped = self.module
        self._optimizer.zero_grad()
        gc.collect()
        if configuration.plan is not None:
            self._wrapped = self._follow(
                load_plan(configuration.plan), is_trial=configuration.is_trial
            )
            return
        self._wrapped = self._ddp(**limits(configuration.caps))
        if self._options.compile:
            self._wrapped = torch.compile(self._wrapped)

    def _inject(self, fault: Fault) -> None:
        """Trains with this fault from now on, and without the one before."""
        share = fault.batch_share(dist.get_rank(), dist.get_world_size())
        if share != self._fault.batch_share(dist.get_rank(), dist.get_world_size()):
            scale = share * self._options.batch_scale
            self._data, self._batches = batches(self._workload, scale)
        self._data.loading_s, self._data.fetching_s = fault.loading_s, fault.fetching_s
        self._fault = fault

    def _ddp(self, **options: Any) -> DistributedDataParallel:
        """Wraps the module without the initial synchronization after the first time: all ranks have
        the same parameters by then, and a slow link takes long to verify it."""
        init_sync, self._is_in_sync = not self._is_in_sync, True
        return DistributedDataParallel(self.module, init_sync=init_sync, **options)

    def _follow(self, plan: Plan, *, is_trial: bool) -> nn.Module:
        wrapped = self._ddp()
        self.schedule = augury.apply(
            wrapped,
            self._optimizer,
            plan,
            replan=self._options.replan,
            **({"trial": is_trial} if has_trial() else {}),
        )
        if self.schedule.reason is not None:
            raise ValueError(f"the plan is not followed: {self.schedule.reason}")
        return wrapped

    def finish_trial(self) -> dict[str, Any]:
        """Trains until the trial has decided. All ranks run the same number of steps."""
        for _ in range(0, MAX_TRIAL_STEPS, TRIAL_LOOK):
            times = self.train(TRIAL_LOOK)
            status = board.status
            is_over = torch.tensor([int(status is not None and bool(status.trials))])
            dist.all_reduce(is_over, op=dist.ReduceOp.MIN)
            if is_over.item():
                assert status is not None
                found: dict[str, Any] = msgspec.to_builtins(status.trials[-1])
                return {"trial": found, **times}
        raise ValueError(f"the trial did not end within {MAX_TRIAL_STEPS} steps")

    @property
    def num_hooks(self) -> int:
        """Number of hooks on the module, its parameters and the optimizer: stock DDP has none
        there."""
        modules, optimizer = list(self.module.modules()), self._optimizer
        of_modules = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in modules)
        parameters = [p._post_accumulate_grad_hooks or {} for p in self.module.parameters()]
        replaced = {"step", "zero_grad"} & vars(optimizer).keys()
        return of_modules + sum(map(len, parameters)) + len(replaced)

    def train(self, num_steps: int) -> dict[str, list[int]]:
        """Returns the begin, the end of each step, and the duration of each forward."""
        stamps, forward = [time.time_ns()], []
        for _ in range(num_steps):
            forward.append(self._step())
            stamps.append(time.time_ns())
        return {"stamps_ns": stamps, "forward_ns": forward}

    def _step(self) -> int:
        """Runs a step; returns the duration of the last forward."""
        forward_ns = 0
        self._num_steps += 1
        self._fault.before_step(self._num_steps)
        self._optimizer.zero_grad()
        for micro_batch in range(1, self._accumulate + 1):
            inputs, targets = next(self._batches)
            is_last = micro_batch == self._accumulate
            if is_last or not isinstance(self._wrapped, DistributedDataParallel):
                synchronised = nullcontext()
            else:
                synchronised = self._wrapped.no_sync()
            with synchronised:
                began_ns = time.time_ns()
                loss = nn.functional.cross_entropy(self._wrapped(inputs), targets)
                forward_ns = time.time_ns() - began_ns
                loss.backward()
        self._optimizer.step()
        self.loss = loss.item()
        return forward_ns


def limits(caps: tuple[float, ...]) -> dict[str, Any]:
    """Options of DDP. A given cap also applies to the first bucket, which has its own cap by
    default."""
    if not caps:
        return {}
    return {"bucket_cap_mb": caps[0]} if len(caps) == 1 else {"bucket_cap_mb_list": list(caps)}


def batches(
    workload: Workload, scale: float
) -> tuple[DecodedDataset, Iterator[tuple[Tensor, Tensor]]]:
    """Returns this rank's own data and batches of it without end, ``scale`` times as large as
    usual."""
    batch = max(1, round(scale * workload.batch))
    torch.manual_seed(1 + dist.get_rank())
    data = DecodedDataset(*workload.sample(16 * batch))
    forever = RandomSampler(data, replacement=True, num_samples=1 << 40)
    return data, _batches_of(DataLoader(data, batch_size=batch, sampler=forever))


def _batches_of(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Starts the loader with the first batch: its workers copy the data as it is then."""
    yield from loader


def pass_gate(gate: Path | None, block: int) -> None:
    """Waits at the gate on rank 0 only: the others wait for it in the first collective of the
    block."""
    if gate is None or dist.get_rank() != 0:
        return
    (gate / f"ready-{block}").touch()
    while not (gate / f"go-{block}").exists():
        time.sleep(0.002)


def listed_blocks(options: argparse.Namespace) -> Iterator[str]:
    for number, words in enumerate(options.blocks * options.rounds):
        pass_gate(options.gate, number)
        yield words


def told_blocks(gate: Path, done: list[dict[str, Any]]) -> Iterator[str]:
    """Yields blocks until told to end. All ranks read the words; rank 0 reports the times of the
    last block."""
    for block in itertools.count():
        if dist.get_rank() == 0:
            partial = gate / f"ready-{block}.partial"
            partial.write_text(json.dumps(done[-1]))
            partial.rename(gate / f"ready-{block}")
        answer = gate / f"go-{block}"
        while not answer.exists():
            time.sleep(0.002)
        words = answer.read_text()
        if words == "end":
            return
        yield words


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer(options)
    base = Configuration(caps=options.cap, accumulate=options.accumulate, fault=options.fault)
    trainer.configure(base)
    first = {"block": "base", "warm_up": 0, **trainer.train(options.steps)}
    done = [first]
    loss = trainer.loss
    for words in told_blocks(options.gate, done) if options.told else listed_blocks(options):
        changes, _, num_measured = words.partition("@")[0].partition(":")
        configuration = base.changed(changes)
        trainer.configure(configuration)
        if configuration.is_trial:
            done.append({"block": words, "warm_up": 0, **trainer.finish_trial()})
            continue
        num_hooks = trainer.num_hooks
        times = trainer.train(options.warm_up + int(num_measured or options.measured))
        block = {"block": words, "warm_up": options.warm_up, "num_hooks": num_hooks}
        done.append({**block, **times})
    if options.times is not None:
        report = {
            "rank": dist.get_rank(),
            "loss": loss.hex(),
            "last_loss": trainer.loss.hex(),
            "blocks": done,
        }
        path = options.times / f"times-{dist.get_rank():05d}.json"
        path.write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


def numbers(text: str) -> tuple[float, ...]:
    """Parses numbers separated by commas; none for ``default``."""
    return () if text == "default" else tuple(float(part) for part in text.split(","))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=WORKLOADS, default="transformer")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--cap", type=numbers, default=(25.0,), help="bucket caps in MB")
    parser.add_argument(
        "--batch-scale", type=float, default=1.0, help="factor of the usual batch size"
    )
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step")
    parser.add_argument("--fault", type=Fault.parse, default=NO_FAULT, help="such as loader-40")
    parser.add_argument("--sharded", action="store_true", help="fully_shard instead of DDP")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--blocks", nargs="*", default=[], help="base, cap=1, cap=1,4:20 (20 steps), ...@label"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--measured", type=int, default=10)
    parser.add_argument("--gate", type=Path, help="folder of the handshake before every block")
    parser.add_argument("--told", action="store_true", help="read the blocks from the gate")
    parser.add_argument("--times", type=Path, help="folder for the times of every step")
    # Measures the plan as it is: no replanning.
    parser.set_defaults(replan=False)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
