"""How rank 0 tells all ranks of a new plan: one word behind the last piece of every few steps.

The word travels with the gradients and is read when the next forward is over, so that nobody waits
for it. It is the size of the plan that follows, or zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from augury.core.plan import Plan
from augury.core.plan_file import decode_plan
from augury.runtime.meter import Meter
from augury.runtime.replan import Replanner
from augury.runtime.torch_agree import share_plan

EVERY = 8


class Control:
    def __init__(self, replanner: Replanner | None, group: Any, meter: Meter) -> None:
        """``replanner``: rank 0's."""
        self._replanner = replanner
        self._group = group
        self._meter = meter
        self._word: Any = None
        self._work: Any = None
        self._new: Plan | None = None

    def send(self) -> None:
        """All gradients of a step are on their way."""
        if self._meter.step % EVERY:
            return
        content = 0
        if self._replanner is not None:
            self._new = self._replanner.new_plan()
            content = self._replanner.size_bytes
        self._word = torch.tensor([content])
        self._work = distributed.broadcast(self._word, 0, group=self._group, async_op=True)

    def wait(self) -> None:
        """Until nothing of it is under way."""
        if self._work is not None:
            self._work.wait()

    def receive(self) -> Plan | None:
        """Of the word that was sent last, if that has not been asked for."""
        if self._work is None:
            return None
        self.wait()
        self._work = None
        size_bytes = int(self._word.item())
        if not size_bytes:
            return None
        return decode_plan(share_plan(self._new, self._group, size_bytes))
