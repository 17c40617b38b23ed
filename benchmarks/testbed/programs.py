"""Small real training programs of several kinds, written without a recorder in mind, for checking
intervals.

``python -m benchmarks.testbed.programs NAME --steps N --out FILE`` trains and writes the end of
each step by the program's own clock. ``--work W`` repeats each step's forward and backward W times
on further samples: a known difference in compute.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

Batches = Iterator[tuple[Tensor, Tensor]]


class Transformer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.embed = nn.Embedding(500, 64)
        self.blocks = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(64, 500)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embed(tokens)))
        return logits.flatten(0, 1)


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(48, 96, batch_first=True)
        self.head = nn.Linear(96, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.cells(inputs)[0][:, -1])
        return logits


def _classes(*shape: int, classes: int = 10) -> Batches:
    generator = torch.Generator().manual_seed(1)
    while True:
        inputs = torch.randn(*shape, generator=generator)
        yield inputs, torch.randint(classes, shape[:1], generator=generator)


def _tokens(num: int, length: int, *, varied: bool = False) -> Batches:
    generator = torch.Generator().manual_seed(1)
    while True:
        size = length
        if varied:
            size = int(torch.randint(length // 3, 2 * length, (1,), generator=generator))
        tokens = torch.randint(500, (num, size), generator=generator)
        yield tokens, tokens.flatten()


class _Samples(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=generator), torch.tensor(index % 10)


def _loaded(batch: int) -> Batches:
    sampler = torch.utils.data.SequentialSampler(_Samples())
    loader = torch.utils.data.DataLoader(
        _Samples(), batch_size=batch, sampler=sampler, num_workers=1
    )
    yield from loader


def _mlp(width: int = 384) -> nn.Module:
    return nn.Sequential(
        *(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())),
        nn.Linear(width, 10),
    )


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def _embedding() -> nn.Module:
    return nn.Sequential(
        nn.EmbeddingBag(40_000, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def _bags() -> Batches:
    generator = torch.Generator().manual_seed(1)
    while True:
        bags = torch.randint(40_000, (256, 20), generator=generator)
        yield bags, torch.randint(10, (256,), generator=generator)


Program = tuple[Callable[[], nn.Module], Callable[[], Batches]]

PROGRAMS: dict[str, Program] = {
    "mlp": (_mlp, lambda: _classes(128, 384)),
    "cnn": (_cnn, lambda: _classes(24, 3, 16, 16)),
    "transformer": (Transformer, lambda: _tokens(8, 24)),
    "embedding": (_embedding, _bags),
    "irregular": (Transformer, lambda: _tokens(6, 32, varied=True)),
    "evaluating": (_mlp, lambda: _classes(128, 384)),
    "loading": (_cnn, lambda: _loaded(24)),
    "recurrent": (Recurrent, lambda: _classes(32, 12, 48)),
    "accumulating": (_cnn, lambda: _classes(12, 3, 16, 16)),
    "pausing": (_mlp, lambda: _classes(64, 384)),
}
"""Programs by name: each returns a model and its batches."""


def main() -> None:
    options = _parse()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make_model, make_batches = PROGRAMS[options.program]
    inner = model = make_model()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = make_batches()
    micro_batches = 3 if options.program == "accumulating" else 1
    ends_ns: list[int] = []
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        for _ in range(micro_batches * options.work):
            inputs, targets = next(batches)
            nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        ends_ns.append(time.perf_counter_ns())
        if options.program == "evaluating" and step % 50 == 0:
            _evaluate(inner, batches)
        if options.program == "pausing" and step % 7 == 0:
            time.sleep(0.01)
    if options.out is not None:
        path = options.out.with_suffix(f".{os.environ.get('RANK', '0')}.json")
        path.write_text(json.dumps(ends_ns))
    if dist.is_initialized():
        dist.destroy_process_group()


def _evaluate(model: nn.Module, batches: Batches) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(15):
            model(next(batches)[0])
    model.train()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--work", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
