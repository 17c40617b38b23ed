"""What a device holds while it goes through its layers, as buffers: the closed form's memory,
taken and given back by operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from augury.core.enums import MemoryKind
from augury.core.graph.graph import NONE
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.memory import HeldItems
from augury.oracle.strategy import StrategyCase
from augury.oracle.strategy_memory import restarted_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    kind: MemoryKind
    size_bytes: float
    taken_by: int = NONE
    given_by: int = NONE
    layer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of the model and its samples, that one device has."""

    samples: float
    items: float = 1.0
    weights: float = 1.0
    is_exchanged: bool = False
    """Gradients are copied into messages."""
    zero: int = 0
    """ZeRO: optimizer state (1), gradients (2), parameters (3) are shared out among ..."""
    devices: float = 1.0


@dataclass(slots=True, kw_only=True)
class Moments:
    """Operations, by layer."""

    forward: list[int] = field(default_factory=list)
    backward: dict[int, int] = field(default_factory=dict)
    gathered: list[tuple[int, int, int]] = field(default_factory=list)
    """Layer, what gathered its parameters, what used them."""
    last: int = NONE


def buffers_of(case: StrategyCase, shares: Shares, at: Moments) -> Iterator[Buffer]:
    work, options = case.work, case.options
    item_bytes = work.precision.item_bytes
    taken = shares.samples * shares.items
    held_bytes = work.weight_bytes * shares.weights

    def whole(kind: MemoryKind, size_bytes: float, since: int = NONE) -> Buffer:
        parted = shares.devices if shares.zero >= _SINCE.get(kind, 4) else 1
        return Buffer(kind=kind, size_bytes=size_bytes / parted, taken_by=since)

    yield whole(MemoryKind.PARAMETER, held_bytes)
    kept_bytes = case.constants.memory_reuse * item_bytes * taken
    if options.is_bare:
        yield whole(MemoryKind.GRADIENT, held_bytes)
        yield whole(MemoryKind.ACTIVATION, 2 * kept_bytes * work.touched_items)
        return
    yield whole(MemoryKind.OPTIMIZER, options.optimizer_copies * held_bytes)
    yield whole(MemoryKind.OTHER, 4 * taken * work.sample_items)
    if shares.is_exchanged and case.devices[0] > 1:
        yield whole(MemoryKind.COMMUNICATION, held_bytes)
    if options.recompute:
        yield whole(MemoryKind.ACTIVATION, kept_bytes * restarted_items(work), at.forward[0])
    held = HeldItems.of(work.model)
    parted = shares.devices if shares.zero >= _SINCE[MemoryKind.GRADIENT] else 1
    for place, layer in enumerate(work.model.layers):
        forward, backward = at.forward[place], at.backward[place]
        if layer.saved_items and not options.recompute:
            yield Buffer(
                kind=MemoryKind.ACTIVATION,
                size_bytes=kept_bytes * layer.saved_items,
                taken_by=forward,
                given_by=backward,
                layer=layer.name,
            )
        if layer.num_parameters:
            yield Buffer(
                kind=MemoryKind.GRADIENT,
                size_bytes=WEIGHT_BYTES * layer.num_parameters * shares.weights / parted,
                taken_by=backward,
                given_by=at.last,
                layer=layer.name,
            )
        for op, items in (
            (forward, held.forward_transient[place]),
            (backward, held.backward_transient[place]),
        ):
            if items:
                yield Buffer(
                    kind=MemoryKind.WORKSPACE,
                    size_bytes=item_bytes * taken * int(items),
                    taken_by=op,
                    given_by=op,
                    layer=layer.name,
                )
    for place, gathered, used in at.gathered:
        yield Buffer(
            kind=MemoryKind.PARAMETER,
            size_bytes=WEIGHT_BYTES * float(work.parameters[place]),
            taken_by=gathered,
            given_by=used,
            layer=work.model.layers[place].name,
        )


_SINCE = {MemoryKind.OPTIMIZER: 1, MemoryKind.GRADIENT: 2, MemoryKind.PARAMETER: 3}
"""From which stage of ZeRO on they are shared out."""
