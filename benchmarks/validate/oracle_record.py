"""The record that a job of the oracle suite writes, and its aggregates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.testbed.strategies.cnns import CNNS, Cnn
from benchmarks.validate.measured import Measured

F8 = NDArray[np.float64]

TRIMMED = 0.1
"""Share trimmed at either end before taking means. The oracle predicts sums, so means are compared,
not medians."""


@dataclass(frozen=True)
class LayerSeconds:
    """Arrays of [rank, repetition, layer]; the update has [rank, repetition]."""

    forward: F8
    backward: F8
    update: F8


@dataclass(frozen=True)
class Record:
    document: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Record:
        return cls(json.loads((folder / "job.json").read_text()))

    @property
    def cnn(self) -> Cnn:
        return CNNS[self.document["cnn"]]

    @property
    def num_ranks(self) -> int:
        return int(self.document["num_ranks"])

    @property
    def cores(self) -> int:
        return min(self.num_ranks, int(self.document["cores"]))

    @property
    def first_layers(self) -> list[int]:
        return list(self.document["first_layers"])

    @property
    def differences(self) -> dict[str, float]:
        return dict(self.document["differences"])

    @property
    def strategies(self) -> list[str]:
        return list(self.document["steps_ns"])

    def layers(self, strategy: str) -> LayerSeconds:
        own = [rank[strategy] for rank in self.document["layers"]]
        return LayerSeconds(
            *(
                np.array([rank[name] for rank in own])
                for name in ("forward_s", "backward_s", "update_s")
            )
        )

    def link_s(self, kind: str, group: str, size_bytes: int) -> float:
        for link in self.document["links"]:
            if (link["kind"], link["group"], link["size_bytes"]) == (kind, group, size_bytes):
                return mean_s(np.array(link["times_s"]))
        raise KeyError(f"{kind} of {size_bytes} bytes among {group}")

    def sizes(self, kind: str, group: str) -> list[int]:
        found = self.document["links"]
        return [one["size_bytes"] for one in found if (one["kind"], one["group"]) == (kind, group)]

    def slowest(self, seconds: F8) -> F8:
        """Reduces [rank, repetition, ...] to the time that all ranks wait for: ranks that share a
        core finish at about the same time, in whatever order; of the cores the slowest counts."""
        by_core = [seconds[core :: self.cores].mean(axis=0) for core in range(self.cores)]
        return means(np.max(by_core, axis=0))

    def measured(self, strategy: str) -> Measured:
        """Returns the measured step; turns alternate between two halves, whose difference is the
        noise."""
        turns: list[list[int]] = self.document["steps_ns"][strategy]
        whole = _mean_of(turns)
        apart = abs(_mean_of(turns[::2]) - _mean_of(turns[1::2]))
        return Measured(
            step_ns=round(whole),
            noise_pct=100 * apart / whole,
            num_steps=sum(map(len, turns)),
        )


def mean_s(values: F8) -> float:
    return float(means(values))


def means(values: F8) -> F8:
    """Trimmed means over the first axis."""
    off = int(TRIMMED * len(values))
    kept: F8 = np.sort(values, axis=0)[off : len(values) - off].mean(axis=0)
    return kept


def _mean_of(turns: Sequence[Sequence[int]]) -> float:
    return mean_s(np.array([step for turn in turns for step in turn], float))
