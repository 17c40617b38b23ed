"""The scheduling Problem: gradients with release times and needs, and the network between.

Backward releases gradients one after the other, a network carries them, and the next forward needs
them in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from augury.core.errors import InputError

MAX_NS = 1 << 50
MAX_BYTES = 1 << 50


class Scheme(StrEnum):
    """How gradients are exchanged."""

    ALL_REDUCE = "all-reduce"
    PARAMETER_SERVER = "parameter-server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A message of s bytes holds its link for ``overhead_ns + ns_per_byte * s`` and arrives
    ``latency_ns`` after that. With all-reduce that is the whole exchange, on one link; with a
    parameter server it is one direction, and both directions can be busy at once."""

    scheme: Scheme = Scheme.ALL_REDUCE
    overhead_ns: int = 0
    ns_per_byte: float
    latency_ns: int = 0
    server_ns_per_byte: float = 0.0
    """Time of the server between a push and its pull."""
    spread: float = 0.0
    """Standard deviation of single transfers, as a share of their time."""

    def __post_init__(self) -> None:
        for name in ("overhead_ns", "latency_ns"):
            _require(0 <= getattr(self, name) <= MAX_NS, f"{name} is {getattr(self, name)}")
        for name in ("ns_per_byte", "server_ns_per_byte", "spread"):
            _require(0 <= getattr(self, name) <= 1e12, f"{name} is {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient of one parameter. A slice of it is a whole number of items."""

    name: str
    size_bytes: int
    item_bytes: int = 4
    release_ns: int
    """When backward has computed it, from the start of backward."""
    spread_ns: int = 0
    """Standard deviation of the release time over steps."""
    need_ns: int
    """When the next forward needs it, from the start of forward, if forward never waits and updates
    take no time."""
    update_ns: int = 0
    """Time of the optimizer for this parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One step from the start of backward to the end of the next forward. Gradients are listed in
    the order in which forward needs them: the index is the priority."""

    gradients: tuple[Gradient, ...]
    backward_ns: int
    between_ns: int = 0
    """Time between backward and forward, without updates."""
    forward_ns: int
    network: Network

    def __post_init__(self) -> None:
        _require(bool(self.gradients), "there are no gradients")
        for field in ("backward_ns", "between_ns", "forward_ns"):
            _require(0 <= getattr(self, field) <= MAX_NS, f"{field} is {getattr(self, field)}")
        before_ns = 0
        for gradient in self.gradients:
            name = f"gradient {gradient.name!r}"
            _require(
                1 <= gradient.item_bytes <= gradient.size_bytes <= MAX_BYTES
                and gradient.size_bytes % gradient.item_bytes == 0,
                f"{name} has {gradient.size_bytes} bytes in items of {gradient.item_bytes}",
            )
            _require(
                0 <= gradient.release_ns <= self.backward_ns,
                f"{name} is released outside of backward",
            )
            _require(
                before_ns <= gradient.need_ns <= self.forward_ns,
                f"{name} is needed outside of forward, or not in the order of the list",
            )
            _require(
                0 <= gradient.update_ns <= MAX_NS and 0 <= gradient.spread_ns <= MAX_NS,
                f"{name} has update_ns {gradient.update_ns} and spread_ns {gradient.spread_ns}",
            )
            before_ns = gradient.need_ns

    @property
    def size_bytes(self) -> int:
        return sum(gradient.size_bytes for gradient in self.gradients)

    @property
    def compute_ns(self) -> int:
        """The step if communication took no time."""
        updates_ns = sum(gradient.update_ns for gradient in self.gradients)
        return self.backward_ns + self.between_ns + self.forward_ns + updates_ns

    @property
    def ratio(self) -> float:
        """Ratio of communication to compute."""
        return self.size_bytes * self.network.ns_per_byte / max(1, self.compute_ns)


def _require(is_fine: bool, cause: str) -> None:
    if not is_fine:
        raise InputError(
            f"invalid scheduling problem: {cause}", remedy="check the source of the problem"
        )
