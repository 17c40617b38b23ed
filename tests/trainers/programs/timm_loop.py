"""A plain DDP loop over models of ``timm``."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist

if torch.version.cuda is None:
    # A torchvision for GPUs cannot load its operators here, and its import fails without their
    # declarations. timm's models do not call them.
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm
import workload
from timm.optim import create_optimizer_v2
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="resnet10t", help="a name that timm.create_model knows")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--size", type=int, default=64, help="height and width of the images")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
sized = {"img_size": options.size} if options.model.startswith("vit") else {}
inner = model = timm.create_model(
    options.model, pretrained=False, num_classes=workload.NUM_CLASSES, **sized
)
if "WORLD_SIZE" in os.environ:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
inputs = torch.randn(options.batch, 3, options.size, options.size)
targets = torch.arange(options.batch) % workload.NUM_CLASSES
for _step in range(options.steps):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
workload.print_result(loss.detach(), inner)
workload.end_process_group()
