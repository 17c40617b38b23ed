"""The Cluster: devices, and the levels of network that connect them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from augury.core.cluster.device import Device
from augury.core.columns import F8, I8
from augury.core.errors import InputError, UsageError
from augury.core.units import NS_PER_S

MAX_DEVICES = 1 << 20
MAX_LEVELS = 8
MAX_LATENCY_NS = 60 * NS_PER_S
MAX_BANDWIDTH_BYTES_PER_S = 10**15
MAX_OVERSUBSCRIPTION = 1000


@dataclass(frozen=True, kw_only=True)
class Link:
    """Cost of one message: the sender is busy for the overhead and the bytes, then the message
    travels for the latency."""

    latency_ns: int
    bandwidth_bytes_per_s: int
    overhead_ns: int = 0

    def __post_init__(self) -> None:
        _require_within("latency_ns", self.latency_ns, 0, MAX_LATENCY_NS)
        _require_within(
            "bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, 1, MAX_BANDWIDTH_BYTES_PER_S
        )
        _require_within("overhead_ns", self.overhead_ns, 0, MAX_LATENCY_NS)

    def send_ns(self, size_bytes: int) -> int:
        """Time for which the sender's port is busy, rounded up."""
        return self.overhead_ns - (-size_bytes * NS_PER_S // self.bandwidth_bytes_per_s)

    def transfer_ns(self, size_bytes: int) -> int:
        """Time from the start of sending until the receiver has the whole message."""
        return self.send_ns(size_bytes) + self.latency_ns


@dataclass(frozen=True, kw_only=True)
class NetworkLevel(Link):
    """Network between the units of the level below: devices of a host, hosts at a switch.

    Latency and bandwidth are those of one flow with a link to itself.
    """

    name: str
    devices: int
    """Number of devices in one unit of this level, all levels below included."""
    links: int = 1
    """Number of links from one unit of the level below into this level."""
    oversubscription: float = 1.0
    """Ratio of the bandwidth of those links to the bandwidth that this level forwards."""
    is_measured: bool = False
    """Whether latency and bandwidth were fitted to timed collectives; otherwise nominal."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
            _require_within("devices", self.devices, 1, MAX_DEVICES)
            _require_within("links", self.links, 1, MAX_DEVICES)
            _require_within("oversubscription", self.oversubscription, 1, MAX_OVERSUBSCRIPTION)
        except UsageError as error:
            raise UsageError(f"level {self.name!r}: {error.cause}", remedy=error.remedy) from error


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Levels of network from the host up; devices, numbered from 0, fill one host after the other.

    The lowest level is the host. Each rank of a job has one device.
    """

    name: str = "cluster"
    levels: tuple[NetworkLevel, ...]
    device: Device | None = None
    """Figures of one device; None where only the network is described."""
    price_per_device_hour: float | None = None
    input_bandwidth_bytes_per_s: float | None = None
    """Rate at which one host reads samples; None: reading is never a bottleneck."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.levels) <= MAX_LEVELS:
            raise UsageError(
                f"a cluster of {len(self.levels)} levels", remedy=f"give 1 to {MAX_LEVELS}"
            )
        sizes = [level.devices for level in self.levels]
        if sizes != sorted(sizes):
            raise UsageError(
                "a level has fewer devices than the level below it",
                remedy="list the levels from the host up; devices counts all levels below",
            )
        amounts = (self.price_per_device_hour, self.input_bandwidth_bytes_per_s)
        if not all(value is None or 0 < value < 1e15 for value in amounts):
            raise UsageError("a price or an input bandwidth is not positive", remedy="leave it out")

    @classmethod
    def of_hosts(cls, *, num_hosts: int, ranks_per_host: int, intra: Link, inter: Link) -> Cluster:
        """Makes a cluster of equal hosts: ``intra`` links inside, ``inter`` between them."""
        _require_within("num_hosts", num_hosts, 1, MAX_DEVICES)
        _require_within("ranks_per_host", ranks_per_host, 1, MAX_DEVICES)
        return cls(
            levels=(
                _level("host", ranks_per_host, intra),
                _level("network", num_hosts * ranks_per_host, inter),
            )
        )

    @property
    def num_devices(self) -> int:
        return self.levels[-1].devices

    @property
    def devices_per_host(self) -> int:
        return self.levels[0].devices

    @property
    def num_hosts(self) -> int:
        return -(-self.num_devices // self.devices_per_host)

    @property
    def described_device(self) -> Device:
        """Figures of one device; refused where the cluster has none."""
        if self.device is None:
            raise InputError(
                f"the description of cluster {self.name!r} has no device",
                remedy="add `device = NAME` of a preset, or a [device] table (docs/oracle.md)",
            )
        return self.device

    def host_of(self, device: int) -> int:
        if not 0 <= device < self.num_devices:
            raise UsageError(
                f"rank {device} is not in a cluster of {self.num_devices} devices",
                remedy="add hosts or devices per host",
            )
        return device // self.devices_per_host

    def link_of_hosts(self, one: int, other: int) -> NetworkLevel:
        """Level that connects two hosts, or the devices of one host."""
        size = self.devices_per_host
        return self.levels[self.level_between(one * size, other * size)]

    def level_between(self, one: int, other: int) -> int:
        """Index of the lowest level that holds both devices."""
        together = (one // level.devices == other // level.devices for level in self.levels[:-1])
        return next((index for index, held in enumerate(together) if held), len(self.levels) - 1)

    def level_of(self, span: F8) -> I8:
        """Index of the lowest level that holds ``span`` neighbouring devices."""
        return self._sizes.searchsorted(span)

    def latency_s(self, level: I8) -> F8:
        return self._latencies_s[level]

    def seconds_per_byte(self, level: I8) -> F8:
        """Inverse bandwidth of one flow around a ring, which runs at its slowest hop."""
        return self._seconds_per_byte[level]

    def sharing(self, level: I8, flows: F8) -> F8:
        """Factor by which each of ``flows`` rings that leave every host side by side is slower;
        1 while there are links for all of them."""
        return np.maximum(1.0, flows * self._oversubscription_per_flow[level])

    @cached_property
    def _sizes(self) -> F8:
        # The top level holds any number: too many devices are refused elsewhere, with a message.
        return np.array([*(level.devices for level in self.levels[:-1]), np.inf])

    @cached_property
    def _latencies_s(self) -> F8:
        return np.array([level.latency_ns for level in self.levels]) * 1e-9

    @cached_property
    def _seconds_per_byte(self) -> F8:
        each = [1 / level.bandwidth_bytes_per_s for level in self.levels]
        return np.maximum.accumulate(each)

    @cached_property
    def _oversubscription_per_flow(self) -> F8:
        """Worst over the levels up to each; flows inside a host do not share links."""
        each = [0.0, *(level.oversubscription / level.links for level in self.levels[1:])]
        return np.maximum.accumulate(each)


def _level(name: str, devices: int, link: Link) -> NetworkLevel:
    return NetworkLevel(
        name=name,
        devices=devices,
        latency_ns=link.latency_ns,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
        overhead_ns=link.overhead_ns,
    )


def _require_within(name: str, value: float, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name} is {value}", remedy=f"make it {low:,} to {high:,}")
