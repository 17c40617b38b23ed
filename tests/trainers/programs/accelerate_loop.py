"""A training loop with ``accelerate``: its launcher or torchrun starts the processes."""

from __future__ import annotations

import argparse

import torch
import workload
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=workload.MODELS, default="mlp")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--clip", action="store_true")
parser.add_argument("--bf16", action="store_true")
options = parser.parse_args()

torch.set_num_threads(1)
set_seed(0)
accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=options.accumulate,
    mixed_precision="bf16" if options.bf16 else "no",
)
model = workload.MODELS[options.model]()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
loader = DataLoader(workload.images(), batch_size=options.batch)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

num_steps = 0
while num_steps < options.steps:
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            if options.clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        num_steps += accelerator.sync_gradients
        if num_steps == options.steps:
            break
workload.print_result(loss.detach(), accelerator.unwrap_model(model))
workload.end_process_group()
