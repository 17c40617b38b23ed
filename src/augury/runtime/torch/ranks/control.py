"""What rank 0 tells all ranks, beside their gradients.

A word goes out behind the last piece of every few steps and is read when the next step's first
gradient is there, so that no rank waits for it. Both are points that every rank passes once per
exchange of gradients, whatever else its program does. The word is the size of the message that
follows, or zero. The group carries nothing that other threads issue.
"""

from __future__ import annotations

from typing import Any

import torch

from augury.runtime.torch.ranks.groups import ControlGroup

EVERY = 4


class Control:
    def __init__(self, group: ControlGroup) -> None:
        self.group = group
        self._word: Any = None
        self._work: Any = None
        self._message = b""

    @staticmethod
    def is_due(step: int) -> bool:
        return step % EVERY == 0

    def send(self, message: bytes) -> None:
        """Once per due step, by all ranks; those other than 0 have nothing to say."""
        self._message = message
        self._word = torch.tensor([len(message)])
        self._work = self.group.broadcast(self._word)

    def close(self, *, is_lost: bool) -> None:
        if is_lost:
            self.group.abandon()
        elif self._work is not None:
            self._work.wait()  # all ranks have sent it
        self._work = None

    def settle(self) -> None:
        """Wait until the last word has arrived. All ranks have sent it, or are about to."""
        if self._work is not None:
            self._work.wait()

    def receive(self) -> bytes:
        """What was sent last, once; empty: nothing."""
        if self._work is None:
            return b""
        self._work.wait()
        self._work = None
        size_bytes = int(self._word.item())
        if not size_bytes:
            return b""
        if self.group.rank == 0:
            content = torch.frombuffer(bytearray(self._message), dtype=torch.uint8)
        else:
            content = torch.empty(size_bytes, dtype=torch.uint8)
        self.group.broadcast(content).wait()
        return bytes(content.numpy())

    def vote(self, number: int) -> Any:
        """A sum over all ranks, to be waited for later."""
        total = torch.tensor([number])
        return total, self.group.all_reduce(total)
