"""Small trainings whose runs are recorded: ``torchrun ... training.py KIND STEPS``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

Step = Callable[[], None]


def mlp() -> nn.Module:
    widths = (128, 384, 384, 256, 384, 10)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, 24),
        *block(24, 48),
        nn.MaxPool2d(2),
        *block(48, 64),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 4, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


class Attention(nn.Module):
    def __init__(self, width: int = 96, num_layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
            for _ in range(num_layers)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(1))


class Partly(nn.Module):
    """One of its layers is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.unused = mlp(), nn.Linear(64, 64)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(inputs)


def supervised(
    model: nn.Module, inputs: Tensor, *, momentum: float = 0.9, accumulate: int = 1
) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
    targets = torch.randint(10, (len(inputs),))

    def step() -> None:
        optimizer.zero_grad()
        for micro in range(accumulate):
            is_last = micro == accumulate - 1
            with nullcontext() if is_last else model.no_sync():
                nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def vectors(batch: int = 32) -> Tensor:
    return torch.randn(batch, 128)


def sharded() -> Step:
    model = mlp()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return supervised(model, vectors())


def pipeline() -> Step:
    rank, num_stages = dist.get_rank(), dist.get_world_size()
    part = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 128))
    stage = PipelineStage(part, rank, num_stages, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.01)
    inputs, targets = vectors(), vectors()

    def step() -> None:
        optimizer.zero_grad()
        schedule.step(
            *((inputs,) if rank == 0 else ()),
            **({"target": targets} if rank == num_stages - 1 else {}),
        )
        optimizer.step()

    return step


KINDS: dict[str, Callable[[], Step]] = {
    "mlp": lambda: supervised(DistributedDataParallel(mlp()), vectors()),
    "buckets": lambda: supervised(DistributedDataParallel(mlp(), bucket_cap_mb=0.3), vectors()),
    "conv": lambda: supervised(DistributedDataParallel(conv()), torch.randn(4, 3, 16, 16)),
    "transformer": lambda: supervised(
        DistributedDataParallel(Attention(), bucket_cap_mb=0.5), torch.randint(500, (4, 16))
    ),
    "accumulation": lambda: supervised(DistributedDataParallel(mlp()), vectors(), accumulate=3),
    "sharded": sharded,
    "unused": lambda: supervised(
        DistributedDataParallel(Partly(), find_unused_parameters=True), vectors()
    ),
    "pipeline": pipeline,
    "compiled": lambda: supervised(
        torch.compile(DistributedDataParallel(mlp()), backend="aot_eager"), vectors()
    ),
}


def main() -> None:
    kind, num_steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    step = KINDS[kind]()
    for _ in range(num_steps):
        step()
    # gloo's threads need the interpreter to free the last collective; the destructor of the group
    # waits for these threads and does not release it.
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
