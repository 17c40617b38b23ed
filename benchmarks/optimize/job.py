"""A data-parallel job of a published kind: a network on many devices that exchange gradients.

Assumed: one V100 to a rank; links of the stated rate in each direction, all of it reached.

- Ring: an all-reduce of s bytes over n ranks holds the link for ``2 (n - 1) / n`` s bytes and
  ``2 (n - 1)`` hops of ``HOP_NS``. By default DDP's buckets of 25 MiB, the first of 1 MiB, and an
  optimizer that waits for all of them.
- Servers: as many as workers, each with a link of its own; tensors are spread evenly, so that the
  worker's link is the bottleneck. A push or a pull takes ``MESSAGE_NS`` besides its bytes and
  arrives ``HOP_NS`` later; servers sum and update at ``SERVER_NS_PER_BYTE``. By default tensors are
  cut at 4,096,000 bytes, as BytePS does, and sent as they are released; forward waits layer by
  layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from augury.core.plan.plan import Order
from augury.core.plan.problem import Gradient, Problem, Scheme
from augury.core.plan.problem import Network as Link
from augury.schedule.order_parts import Message, cut, exchanged, gather, release_order
from augury.schedule.policies.ddp import Ddp
from benchmarks.optimize.networks import Network, update_ns

HOP_NS = 5_000
MESSAGE_NS = 30_000
SERVER_NS_PER_BYTE = 0.1
PARTITION_BYTES = 4_096_000
_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    network: Network
    scheme: Scheme
    gbit_per_s: float
    num_ranks: int = 16

    @property
    def link(self) -> Link:
        ns_per_byte = _BITS / self.gbit_per_s
        if self.scheme is Scheme.PARAMETER_SERVER:
            return Link(
                scheme=self.scheme,
                overhead_ns=MESSAGE_NS,
                ns_per_byte=ns_per_byte,
                latency_ns=HOP_NS,
                server_ns_per_byte=SERVER_NS_PER_BYTE,
            )
        rounds = 2 * (self.num_ranks - 1)
        return Link(overhead_ns=rounds * HOP_NS, ns_per_byte=rounds / self.num_ranks * ns_per_byte)

    @property
    def has_barrier(self) -> bool:
        """Whether updates wait for all gradients by default."""
        return self.scheme is Scheme.ALL_REDUCE

    def problem(self, compiled: Iterable[range] = ()) -> Problem:
        """Returns the scheduling problem if these places of layers are compiled, each as one."""
        layers = self.network.layers
        units = _units(len(layers), compiled)
        times_ns = [
            self.network.compiled_ns(unit)
            if is_compiled
            else (layers[unit[0]].forward_ns, layers[unit[0]].backward_ns)
            for unit, is_compiled in units
        ]
        backward_ns = released_ns = sum(backward for _, backward in times_ns)
        serves = self.scheme is Scheme.PARAMETER_SERVER
        gradients: list[Gradient] = []
        forward_ns = 0
        for (unit, _), (unit_forward_ns, unit_backward_ns) in zip(units, times_ns, strict=True):
            gradients += (
                Gradient(
                    name=f"{layers[place].path}.{nth}",
                    size_bytes=size_bytes,
                    release_ns=released_ns,
                    need_ns=forward_ns,
                    update_ns=0 if serves else update_ns(size_bytes),
                )
                for place in unit
                for nth, size_bytes in enumerate(layers[place].tensors_bytes)
            )
            forward_ns += unit_forward_ns
            released_ns -= unit_backward_ns
        return Problem(
            gradients=tuple(gradients),
            backward_ns=backward_ns,
            forward_ns=forward_ns,
            network=self.link,
        )

    def default_order(self, problem: Problem) -> Order:
        if self.scheme is Scheme.ALL_REDUCE:
            return Ddp().compile(problem)
        messages = [
            (part,)
            for place in release_order(problem)
            for part in cut(problem, place, PARTITION_BYTES)
        ]
        return self.order("byteps", problem, messages)

    def order_of_sizes(self, problem: Problem, most_bytes: int) -> Order:
        """Returns messages of at most this size, in the order of release: large tensors are cut,
        small ones go together."""
        parts = (
            part for place in release_order(problem) for part in cut(problem, place, most_bytes)
        )
        return self.order(f"messages of {most_bytes}", problem, gather(parts, most_bytes))

    def order(self, name: str, problem: Problem, messages: Sequence[Message]) -> Order:
        return Order(policy=name, pieces=exchanged(problem, messages), has_barrier=self.has_barrier)


def _units(num_layers: int, compiled: Iterable[range]) -> list[tuple[range, bool]]:
    """Returns compiled modules, and all other layers one by one, in the order of forward."""
    first = {places.start: places for places in compiled}
    found: list[tuple[range, bool]] = []
    place = 0
    while place < num_layers:
        own = first.get(place, range(place, place + 1))
        found.append((own, place in first))
        place = own.stop
    return found
