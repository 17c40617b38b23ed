"""Sweep over strategies and numbers of devices, all evaluated at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from augury.core.cluster.cluster import MAX_DEVICES, Cluster
from augury.core.errors import UsageError
from augury.oracle.feasibility import Judged, judge
from augury.oracle.fitting.corrections import BARE, Constants
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.registry import STRATEGIES
from augury.oracle.strategy import Options, Strategy, StrategyCase

MAX_BATCH = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Batch of all devices together, or of each device; exactly one is stated."""

    total: int | None = None
    per_device: int | None = None

    def __post_init__(self) -> None:
        stated = [size for size in (self.total, self.per_device) if size is not None]
        if len(stated) != 1:
            raise UsageError(
                "the batch is not stated, or stated twice",
                remedy="give --global-batch or --batch-per-device",
            )
        if not 1 <= stated[0] <= MAX_BATCH:
            raise UsageError(f"a batch of {stated[0]}", remedy=f"give 1 to {MAX_BATCH:,}")

    def of(self, devices: int) -> int:
        return self.total if self.total is not None else (self.per_device or 1) * devices


def sweep(
    work: LayerWork,
    cluster: Cluster,
    *,
    devices: Sequence[int],
    batch: Batch,
    strategies: Sequence[Strategy] = STRATEGIES,
    constants: Constants = BARE,
    options: Options | None = None,
    memory_limit_bytes: float | None = None,
) -> list[Judged]:
    """Returns one entry per strategy, each with all numbers of devices."""
    case = StrategyCase(
        work=work,
        cluster=cluster,
        constants=constants,
        options=options or Options(),
        devices=np.array(devices, float),
        batch=np.array([batch.of(number) for number in devices], float),
    )
    return [
        judge(strategy.evaluate(case), case, memory_limit_bytes=memory_limit_bytes)
        for strategy in strategies
    ]


def parse_devices(text: str) -> list[int]:
    """Parses ``4:1024`` (doublings) or ``4,6,8`` (a list)."""
    first, colon, last = text.partition(":")
    parts = [first, last] if colon else text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UsageError(
            f"{text[:80]!r} are not numbers of devices", remedy="write 4:1024 or 4,6,8"
        )
    if any(len(part.strip()) > 9 for part in parts):
        raise UsageError("too many devices", remedy=f"give at most {MAX_DEVICES:,}")
    numbers = [int(part) for part in parts]
    if not all(1 <= number <= MAX_DEVICES for number in numbers):
        raise UsageError(
            f"{text[:80]!r} is out of range", remedy=f"give 1 to {MAX_DEVICES:,} devices"
        )
    if not colon:
        return sorted(set(numbers))
    low, high = numbers
    if low > high:
        raise UsageError(f"{text!r} counts downwards", remedy=f"write {high}:{low}")
    found = []
    while low < high:
        found.append(low)
        low *= 2
    return [*found, high] if not found or found[-1] != high else found
