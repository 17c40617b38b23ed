"""Control messages from rank 0 to all ranks.

The size of the next message, or zero, is broadcast after the last piece of every few steps. It is
read when the first gradient of the next step is computed, so that no rank waits for it. Every rank
passes both points once per exchange of gradients, whatever else its program does. Only the main
thread uses the process group.
"""

from __future__ import annotations

from typing import Any

import torch

from augury.runtime.torch.ranks.groups import ControlGroup

EVERY = 4


class Control:
    def __init__(self, group: ControlGroup) -> None:
        self.group = group
        self._size: Any = None
        self._work: Any = None
        self._message = b""

    @staticmethod
    def is_due(step: int) -> bool:
        return step % EVERY == 0

    def send(self, message: bytes) -> None:
        """Broadcasts a message of rank 0. All ranks call this once per due step."""
        self._message = message
        self._size = torch.tensor([len(message)])
        self._work = self.group.broadcast(self._size)

    def close(self, *, is_lost: bool) -> None:
        if is_lost:
            self.group.abandon()
        elif self._work is not None:
            self._work.wait()  # all ranks have called it
        self._work = None

    def settle(self) -> None:
        """Waits for the last broadcast. All ranks have called it, or are about to."""
        if self._work is not None:
            self._work.wait()

    def receive(self) -> bytes:
        """Returns the last message, once; empty: none."""
        if self._work is None:
            return b""
        self._work.wait()
        self._work = None
        size_bytes = int(self._size.item())
        if not size_bytes:
            return b""
        if self.group.rank == 0:
            content = torch.frombuffer(bytearray(self._message), dtype=torch.uint8)
        else:
            content = torch.empty(size_bytes, dtype=torch.uint8)
        self.group.broadcast(content).wait()
        return bytes(content.numpy())

    def vote(self, *numbers: int) -> Any:
        """Starts a sum over all ranks. Returns the totals and the work to wait for."""
        total = torch.tensor(numbers)
        return total, self.group.all_reduce(total)
