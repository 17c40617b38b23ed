"""A training with one injected fault: ``torchrun ... faulty_training.py FAULT STEPS [SIZE]``.

The batch is SIZE times as large as by default.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH = 384, 192
LATE_S, LOAD_S, PAUSE_S = 0.1, 0.1, 0.25
PAUSE_EVERY = 7


class Samples(Dataset):
    """Random samples; the first of a batch may take long to load."""

    def __init__(self, batch: int, load_s: float) -> None:
        self.batch, self.load_s = batch, load_s

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.load_s and index % self.batch == 0:
            time.sleep(self.load_s)
        return torch.full((WIDTH,), index % 7 / 7), torch.tensor(index % 10)


def main() -> None:
    fault, num_steps = sys.argv[1], int(sys.argv[2])
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    cap_mb = 0.1 if fault == "small-buckets" else 25
    if fault.startswith("bucket-"):
        cap_mb = float(fault.removeprefix("bucket-"))
    model = DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(WIDTH, 10)), bucket_cap_mb=cap_mb
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = iter(DataLoader(Samples(BATCH, LOAD_S if fault == "loader" else 0), batch_size=BATCH))
    inputs, targets = next(batches)
    for step in range(num_steps):
        if fault == "loader":
            inputs, targets = next(batches)
        if fault == "generator":
            time.sleep(LOAD_S)
        if fault == "late-rank" and rank == 1:
            time.sleep(LATE_S)
        if fault == "pause" and step % PAUSE_EVERY == PAUSE_EVERY - 1:
            time.sleep(PAUSE_S)
        share = 3 * size if fault == "large-batch" and rank == 1 else size
        if fault == "uneven":
            share = size + 2 * size * ((step // 2 + rank) % 2)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.repeat(share, 1)), targets.repeat(share))
        loss.backward()
        optimizer.step()
    time.sleep(0.3)  # gloo's threads free the last collective
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
