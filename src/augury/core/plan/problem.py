"""What communication scheduling is about: gradients that come one after the other while backward
runs, a network that carries them, and a forward that needs them back in another order."""

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
    """A message of s bytes holds its link for ``overhead_ns + ns_per_byte * s`` and is there
    ``latency_ns`` after that. With all-reduce that is the whole exchange, on one link; with a
    parameter server it is one way, and both ways can be under way at once."""

    scheme: Scheme = Scheme.ALL_REDUCE
    overhead_ns: int = 0
    ns_per_byte: float
    latency_ns: int = 0
    server_ns_per_byte: float = 0.0
    """What the server takes between a push and its pull."""
    spread: float = 0.0
    """How far single transfers lie from this: one standard deviation, as a share."""

    def __post_init__(self) -> None:
        for name in ("overhead_ns", "latency_ns"):
            _require(0 <= getattr(self, name) <= MAX_NS, f"{name} is {getattr(self, name)}")
        for name in ("ns_per_byte", "server_ns_per_byte", "spread"):
            _require(0 <= getattr(self, name) <= 1e12, f"{name} is {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """Of one parameter. A slice of it is a whole number of items."""

    name: str
    size_bytes: int
    item_bytes: int = 4
    release_ns: int
    """When backward has made it, from the start of backward."""
    spread_ns: int = 0
    """How far single steps lie from that: one standard deviation."""
    need_ns: int
    """When the next forward would need it, from the start of forward, if nothing were waited for
    and no update took time."""
    update_ns: int = 0
    """What the optimizer takes for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One step from the start of backward to the end of the next forward. What is needed first
    comes first among the gradients: its place is its priority."""

    gradients: tuple[Gradient, ...]
    backward_ns: int
    between_ns: int = 0
    """What the program does between backward and forward besides updates."""
    forward_ns: int
    network: Network

    def __post_init__(self) -> None:
        _require(bool(self.gradients), "there are no gradients")
        for name in ("backward_ns", "between_ns", "forward_ns"):
            _require(0 <= getattr(self, name) <= MAX_NS, f"{name} is {getattr(self, name)}")
        before_ns = 0
        for gradient in self.gradients:
            who = f"gradient {gradient.name!r}"
            _require(
                1 <= gradient.item_bytes <= gradient.size_bytes <= MAX_BYTES
                and gradient.size_bytes % gradient.item_bytes == 0,
                f"{who} has {gradient.size_bytes} bytes in items of {gradient.item_bytes}",
            )
            _require(
                0 <= gradient.release_ns <= self.backward_ns,
                f"{who} is released outside of backward",
            )
            _require(
                before_ns <= gradient.need_ns <= self.forward_ns,
                f"{who} is not needed in the order of the list, or outside of forward",
            )
            _require(
                0 <= gradient.update_ns <= MAX_NS and 0 <= gradient.spread_ns <= MAX_NS,
                f"{who} takes {gradient.update_ns} ns to apply, +- {gradient.spread_ns} ns to come",
            )
            before_ns = gradient.need_ns

    @property
    def size_bytes(self) -> int:
        return sum(gradient.size_bytes for gradient in self.gradients)

    @property
    def compute_ns(self) -> int:
        """What a step would take if communication took no time."""
        updates_ns = sum(gradient.update_ns for gradient in self.gradients)
        return self.backward_ns + self.between_ns + self.forward_ns + updates_ns

    @property
    def ratio(self) -> float:
        """Communication to compute: whether scheduling can matter at all."""
        return self.size_bytes * self.network.ns_per_byte / max(1, self.compute_ns)


def _require(is_fine: bool, cause: str) -> None:
    if not is_fine:
        raise InputError(f"no scheduling problem: {cause}", remedy="check where it comes from")
