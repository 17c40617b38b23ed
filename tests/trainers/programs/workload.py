"""Models, data and the printed result that the training programs of this folder share.

The programs import this file by its name alone, because their folder is first on ``sys.path``.
"""

from __future__ import annotations

import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

NUM_CLASSES = 10
NUM_TOKENS = 1000
LENGTH = 32


class Samples(Dataset):
    """Random inputs with a class each; every index always gives the same sample."""

    def __init__(self, shape: tuple[int, ...], size: int = 4096) -> None:
        self.shape, self.size = shape, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.shape, generator=generator), torch.tensor(index % NUM_CLASSES)


class Sentences(Dataset):
    """Random token sequences in the form that models of Hugging Face take."""

    def __init__(self, *, has_classes: bool, size: int = 4096) -> None:
        self.has_classes, self.size = has_classes, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(NUM_TOKENS, (LENGTH,), generator=generator)
        labels = torch.tensor(index % NUM_CLASSES) if self.has_classes else tokens
        return {"input_ids": tokens, "labels": labels}


def mlp(width: int = 512) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * 16 * 16, width),
        nn.ReLU(),
        *(layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())),
        nn.Linear(width, NUM_CLASSES),
    )


def conv(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * width, 512),
        nn.ReLU(),
        nn.Linear(512, NUM_CLASSES),
    )


class Branched(nn.Module):
    """A model of which every forward leaves one branch unused, always the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 512), nn.ReLU())
        self.used = nn.Linear(512, 512)
        self.unused = nn.Linear(512, 512)
        self.head = nn.Linear(512, NUM_CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.used(self.body(inputs)).relu())


class Tied(nn.Module):
    """A model whose input and output projections are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(3 * 16 * 16, 512, bias=False)
        self.middle = nn.Sequential(nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        self.back = nn.Linear(3 * 16 * 16, 512, bias=False)
        self.back.weight = self.into.weight
        self.head = nn.Linear(512, NUM_CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        return self.head(self.middle(self.into(flat)) + self.back(flat.flip(1)))


MODELS = {"mlp": mlp, "conv": conv, "branched": Branched, "tied": Tied}


def images(size: int = 4096) -> Samples:
    """Returns the data of all models of ``MODELS``."""
    return Samples((3, 16, 16), size)


def print_result(loss: Tensor | float, model: nn.Module) -> None:
    """Prints the last loss and a digest of the parameters, in one write per rank, because ranks
    share their output."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        local = getattr(parameter, "_local_tensor", parameter)
        digest.update(local.detach().float().contiguous().numpy().tobytes())
    rank = dist.get_rank() if dist.is_initialized() else 0
    sys.stdout.write(f"rank {rank} loss {float(loss).hex()} parameters {digest.hexdigest()[:16]}\n")
    sys.stdout.flush()


def end_process_group() -> None:
    if dist.is_initialized():
        # Torch may abort or hang if its threads still free the last collective when the group ends.
        time.sleep(0.3)
        dist.destroy_process_group()
