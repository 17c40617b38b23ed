"""A training loop with FSDP2: every block is sharded by ``fully_shard``, and the whole model."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import workload
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=("mlp", "transformer"), default="mlp")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--clip", action="store_true")
parser.add_argument("--bf16", action="store_true")
options = parser.parse_args()


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(workload.NUM_TOKENS, options.width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                options.width, 4, 2 * options.width, batch_first=True, dropout=0.0
            )
            for _ in range(3)
        )
        self.head = nn.Linear(options.width, workload.NUM_TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden).flatten(0, 1)


torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if options.bf16 else None
how = {"mesh": mesh} | ({} if policy is None else {"mp_policy": policy})
generator = torch.Generator().manual_seed(dist.get_rank())
if options.model == "transformer":
    model: nn.Module = Transformer()
    blocks = model.blocks
    inputs = torch.randint(
        workload.NUM_TOKENS, (options.batch // 4, workload.LENGTH), generator=generator
    )
    targets = inputs.flatten()
else:
    model = workload.mlp(2 * options.width)
    blocks = [layer for layer in model if isinstance(layer, nn.Linear)]
    inputs = torch.randn(options.batch, 3, 16, 16, generator=generator)
    targets = torch.arange(options.batch) % workload.NUM_CLASSES
for block in blocks:
    fully_shard(block, **how)
fully_shard(model, **how)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _step in range(options.steps):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs).float(), targets)
    loss.backward()
    if options.clip:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
workload.print_result(loss.detach(), model)
workload.end_process_group()
