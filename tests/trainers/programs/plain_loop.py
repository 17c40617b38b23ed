"""A training loop in plain PyTorch: one process or DDP, with every common feature as an option."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
import workload
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=workload.MODELS, default="mlp")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step")
parser.add_argument("--no-sync", action="store_true", help="reduce only the last micro-batch")
parser.add_argument("--clip", action="store_true", help="clip the norm of the gradients")
parser.add_argument("--autocast", action="store_true", help="compute forward in bfloat16")
parser.add_argument("--scaler", action="store_true", help="scale the loss by a GradScaler")
parser.add_argument("--closure", action="store_true", help="train inside the optimizer's closure")
parser.add_argument("--find-unused", action="store_true")
parser.add_argument("--static-graph", action="store_true")
parser.add_argument("--bucket-mb", type=float, default=None)
parser.add_argument("--compile", choices=("inside", "outside"), help="compile in or around DDP")
parser.add_argument("--evaluate-every", type=int, default=0)
parser.add_argument("--save-every", type=int, default=0)
parser.add_argument("--workers", type=int, default=0, help="processes of the DataLoader")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
is_distributed = "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ
inner = model = workload.MODELS[options.model]()
if options.compile == "inside":
    model = torch.compile(model)
if is_distributed:
    dist.init_process_group("gloo")
    limit = {} if options.bucket_mb is None else {"bucket_cap_mb": options.bucket_mb}
    model = DistributedDataParallel(
        model,
        find_unused_parameters=options.find_unused,
        static_graph=options.static_graph,
        **limit,
    )
if options.compile == "outside":
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=options.scaler)
data = workload.images()
loader = DataLoader(
    data,
    batch_size=options.batch,
    sampler=DistributedSampler(data, shuffle=False) if is_distributed else None,
    num_workers=options.workers,
)


def batches():
    while True:
        yield from loader


source = batches()


def forward_and_backward():
    for index in range(options.accumulate):
        inputs, targets = next(source)
        is_last = index == options.accumulate - 1
        skips = is_distributed and options.no_sync and not is_last
        with model.no_sync() if skips else nullcontext():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.autocast):
                loss = nn.functional.cross_entropy(model(inputs), targets) / options.accumulate
            scaler.scale(loss).backward()
    return loss


def closure():
    optimizer.zero_grad()
    return forward_and_backward()


def evaluate() -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            inputs, _targets = next(source)
            model(inputs)
    model.train()


for step in range(1, options.steps + 1):
    if options.closure:
        loss = optimizer.step(closure)
    else:
        optimizer.zero_grad()
        loss = forward_and_backward()
        if options.clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    if options.evaluate_every and step % options.evaluate_every == 0:
        evaluate()
    if options.save_every and step % options.save_every == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "checkpoint.pt")
workload.print_result(loss.detach(), inner)
source.close()
workload.end_process_group()
