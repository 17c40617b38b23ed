"""Small real training jobs, and functions that start them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

TRAINING = """
import os
import sys
import time
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
num_steps = int(sys.argv[1])
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
is_distributed = "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ
if is_distributed:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 32), torch.randn(8, 4)
for step in range(1, num_steps + 1):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    {each_step}
# In one write: ranks share their output.
sys.stdout.write(f"loss {{loss.item().hex()}}\\n")
sys.stdout.flush()
{at_end}
if is_distributed:
    # Torch may abort or hang if its threads still free the last collective when the group ends.
    time.sleep(0.3)
    dist.destroy_process_group()
"""


def write_training(folder: Path, *, each_step: str = "pass", at_end: str = "") -> Path:
    """``each_step`` and ``at_end`` are code that a job runs besides training."""
    path = folder / "train.py"
    path.write_text(TRAINING.format(each_step=each_step, at_end=at_end))
    return path


def torchrun(script: Path, *arguments: str, num_ranks: int = 2) -> list[str]:
    """Returns a command that runs on loopback, on a free port that torch chooses."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={num_ranks}", "--local-addr=127.0.0.1", str(script), *arguments),
    ]


def start(
    command: list[str], *, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )


def start_ranks(
    command: list[str], *, num_ranks: int, **environment: str
) -> list[subprocess.CompletedProcess[str]]:
    """Starts each rank by itself, as a custom launcher does: faster than torchrun."""
    common = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(free_port()), "WORLD_SIZE": str(num_ranks), **environment}
    ranks = [
        subprocess.Popen(
            command,
            env=common | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_ranks)
    ]
    try:
        said = [process.communicate(timeout=600) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    return [
        subprocess.CompletedProcess(command, process.returncode, *output)
        for process, output in zip(ranks, said, strict=True)
    ]


def can_unshare() -> bool:
    unshare = shutil.which("unshare")
    return (
        unshare is not None
        and subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode
        == 0
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def record(out: Path, command: list[str], *options: str, **environment: str):
    augury = [sys.executable, "-m", "augury", "run", "--out", str(out), *options, "--"]
    return start([*augury, *command], **environment)
