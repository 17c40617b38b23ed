"""Section ``threads``: the number of intra-op threads of each rank."""

from __future__ import annotations

import os

import torch

from augury.core.plan.sections import ThreadsSection


def why_not(section: ThreadsSection) -> str | None:
    num_cores = len(os.sched_getaffinity(0))
    if section.num_threads > num_cores:
        return f"{section.num_threads} threads, but a rank may run on {num_cores} cores only"
    return None


class IntraOpThreads:
    def __init__(self, section: ThreadsSection) -> None:
        self._planned = section.num_threads
        self._own = torch.get_num_threads()
        """The number that the program has set."""
        self._is_on = False

    def why_not(self) -> str | None:
        return None

    def use(self, is_on: bool) -> None:
        if is_on == self._is_on:
            return
        self._is_on = is_on
        if is_on:
            self._own = torch.get_num_threads()
            torch.set_num_threads(self._planned)
        elif torch.get_num_threads() == self._planned:
            torch.set_num_threads(self._own)

    def rehearse(self, is_on: bool) -> None:
        """Nothing has to be tried first."""

    def close(self) -> None:
        self.use(False)
