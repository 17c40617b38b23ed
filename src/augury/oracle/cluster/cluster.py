"""A machine as the oracle sees it: a device, and level above level of what connects them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from augury.core.errors import InputError
from augury.oracle.cluster.device import Device

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

MAX_DEVICES = 1 << 20
MAX_LEVELS = 8


@dataclass(frozen=True, kw_only=True)
class NetworkLevel:
    """What connects the units of the level below: devices inside a node, nodes at a switch."""

    name: str
    devices: int
    """In one unit of this level, all levels below included."""
    latency_ns: int
    bandwidth_bytes_per_s: int
    """Of one flow that has a link for itself."""
    links: int = 1
    """From one unit of the level below into this level."""
    oversubscription: float = 1.0
    """How many times more those links could send than this level passes on."""

    def __post_init__(self) -> None:
        usable = (
            1 <= self.devices <= MAX_DEVICES
            and 0 <= self.latency_ns <= 10**10
            and 1 <= self.bandwidth_bytes_per_s <= 10**15
            and 1 <= self.links <= MAX_DEVICES
            and 1 <= self.oversubscription <= 1000
        )
        if not usable:
            raise InputError(
                f"level {self.name!r} has figures that no network has",
                remedy="check devices, latency_ns, bandwidth_bytes_per_s, links, oversubscription",
            )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Devices fill one unit after the other, from the lowest level up."""

    name: str
    device: Device
    levels: tuple[NetworkLevel, ...]
    price_per_device_hour: float | None = None
    input_bandwidth_bytes_per_s: float | None = None
    """At which one unit of the lowest level reads samples; None: never waited for."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.levels) <= MAX_LEVELS:
            raise InputError(
                f"a cluster of {len(self.levels)} levels", remedy=f"give 1 to {MAX_LEVELS}"
            )
        sizes = [level.devices for level in self.levels]
        if sizes != sorted(set(sizes)):
            raise InputError(
                "each level must have more devices than the one below it",
                remedy="list the levels from the node up",
            )
        prices = (self.price_per_device_hour, self.input_bandwidth_bytes_per_s)
        if not all(value is None or 0 < value < 1e15 for value in prices):
            raise InputError("a price or an input bandwidth is not positive", remedy="leave it out")

    @property
    def num_devices(self) -> int:
        return self.levels[-1].devices

    @property
    def devices_per_node(self) -> int:
        return self.levels[0].devices

    def level_of(self, span: F8) -> I8:
        """The lowest level that holds ``span`` neighbouring devices."""
        return self._sizes.searchsorted(span)

    def level_between(self, one: int, other: int) -> int:
        """The lowest level that holds both of two devices."""
        together = (one // level.devices == other // level.devices for level in self.levels[:-1])
        return next((place for place, held in enumerate(together) if held), len(self.levels) - 1)

    def latency_s(self, level: I8) -> F8:
        return self._latencies[level]

    def seconds_per_byte(self, level: I8) -> F8:
        """Of one flow around a ring: its slowest hop."""
        return self._betas[level]

    def sharing(self, level: I8, flows: F8) -> F8:
        """How much slower each of ``flows`` rings is, that leave every node side by side: one,
        while there are links for all."""
        return np.maximum(1.0, flows * self._crowding[level])

    @cached_property
    def _sizes(self) -> F8:
        """The topmost holds any number: asking for more is refused elsewhere, in words."""
        return np.array([*(level.devices for level in self.levels[:-1]), np.inf])

    @cached_property
    def _latencies(self) -> F8:
        return np.array([level.latency_ns for level in self.levels]) * 1e-9

    @cached_property
    def _betas(self) -> F8:
        each = [1 / level.bandwidth_bytes_per_s for level in self.levels]
        return np.maximum.accumulate(each)

    @cached_property
    def _crowding(self) -> F8:
        """Of the narrowest level so far; what stays inside a node meets nobody."""
        each = [0.0, *(level.oversubscription / level.links for level in self.levels[1:])]
        return np.maximum.accumulate(each)
