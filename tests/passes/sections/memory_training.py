"""A training whose memory is measured: ``memory_training.py MODEL CHANGE STEPS [measure]``.

MODEL is cnn, mlp or transformer; CHANGE is none, recompute, half, or the number of micro-batches.
With ``measure`` it prints the peak of its memory in one step, from the allocator's events.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.utils.checkpoint import checkpoint

BLOCKS = ("1", "2", "3")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.linear = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.linear(self.norms[1](x))


class Recomputed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


def transformer() -> tuple[nn.Module, Any]:
    blocks = [Block(128) for _ in BLOCKS]
    layers = [nn.Linear(32, 128), *blocks, nn.Flatten(), nn.Linear(64 * 128, 10)]
    return nn.Sequential(*layers), torch.randn(16, 64, 32)


def cnn() -> tuple[nn.Module, Any]:
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10)), torch.randn(16, 3, 32, 32)


def mlp() -> tuple[nn.Module, Any]:
    layers = [layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(512, 10)), torch.randn(256, 512)


class Training:
    def __init__(self, model: str, change: str) -> None:
        torch.manual_seed(0)
        inner, self.inputs = {"cnn": cnn, "mlp": mlp, "transformer": transformer}[model]()
        if change == "recompute":
            for name in BLOCKS:
                setattr(inner, name, Recomputed(getattr(inner, name)))
        self.targets = torch.randint(0, 10, (len(self.inputs),))
        self.model = nn.parallel.DistributedDataParallel(inner)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.is_half = change == "half"
        self.num_parts = int(change) if change.isdigit() else 1

    def step(self) -> None:
        self.optimizer.zero_grad()
        parts = self.inputs.chunk(self.num_parts), self.targets.chunk(self.num_parts)
        for inputs, targets in zip(*parts, strict=True):
            self.loss(inputs, targets).backward()
        self.optimizer.step()

    def loss(self, inputs: Any, targets: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
            loss = nn.functional.cross_entropy(self.model(inputs), targets)
        return loss / self.num_parts

    def held_bytes(self) -> int:
        """Parameters, momentum and DDP's buckets: they exist before and after each step."""
        return 3 * sum(one.nbytes for one in self.model.parameters())


def peak_bytes(training: Training) -> int:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        training.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    totals = [one["args"]["Total Allocated"] for one in events if one.get("name") == "[memory]"]
    return training.held_bytes() + max(totals)


def main() -> None:
    torch.set_num_threads(1)
    init_process_group("gloo")
    training = Training(*sys.argv[1:3])
    for _ in range(int(sys.argv[3])):
        training.step()
    if sys.argv[4:]:
        print(peak_bytes(training))
    destroy_process_group()


if __name__ == "__main__":
    main()
