"""Real training jobs of several kinds, with two ranks each."""

from __future__ import annotations

from pathlib import Path

BEGIN = """
import sys
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
"""

END = """
sys.stdout.write(f"loss {float(loss.detach()).hex()}\\n")
sys.stdout.flush()
dist.destroy_process_group()
"""

DDP = """
from contextlib import ExitStack

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(300, 400), nn.Linear(400, 300)
        self.unused, self.last = nn.Linear(3, 3), nn.Linear(300, 10)

    def forward(self, inputs):
        return self.last(self.second(self.first(inputs)).relu())

halves = dist.new_group([0, 1])
model = nn.parallel.DistributedDataParallel(
    Model(), find_unused_parameters=True, bucket_cap_mb=0.3
)
head = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 2)), gradient_as_bucket_view=True
)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
inputs = torch.randn(4, 300)
for step in range(1, 16):
    for is_last in (False, True):
        with ExitStack() as unsynchronised:
            for part in () if is_last else (model, head):
                unsynchronised.enter_context(part.no_sync())
            loss = head(model(inputs)).square().mean()
            loss.backward()
    dist.all_reduce(torch.ones(100), group=halves)
    if rank == 0:
        dist.send(torch.ones(10), 1)
    else:
        dist.recv(torch.ones(10), 0)
    optimizer.step()
    optimizer.zero_grad()
"""

SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

mesh = init_device_mesh("cpu", (2,))
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
fully_shard(model[2], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
part = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
stage = PipelineStage(part, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
part_optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
inputs, small = torch.randn(8, 64), torch.randn(4, 16)
for step in range(1, 10):
    if rank == 0:
        schedule.step(small)
    else:
        schedule.step(target=small)
    part_optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    part_optimizer.step()
"""

COMPILED = """
from torch._dynamo.backends.debugging import aot_eager

num_compiled = 0

def backend(graph, inputs):
    global num_compiled
    num_compiled += 1
    return aot_eager(graph, inputs)

model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
)
model = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(8, 32)
for step in range(1, 10):
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
sys.stdout.write(f"compiled {num_compiled}\\n")
sys.stdout.flush()
"""


def write_kind(folder: Path, kind: str) -> Path:
    path = folder / "kind.py"
    path.write_text(BEGIN + kind + END)
    return path
