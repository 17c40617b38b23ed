"""A training in which rank 1 is killed while gradients are in flight."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from augury.runtime.torch.training import schedule_training
from tests.runtime.trainings import Net, Training, plan_of


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    training = Training(model, optimizer)
    scheduled = schedule_training(model, optimizer, plan_of(model), replan=False)
    assert scheduled.reason is None
    for step in range(6):
        training.step()
        if step == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
