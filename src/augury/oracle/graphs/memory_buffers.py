"""Memory of the closed form as buffers of a Graph, which operations allocate and free."""

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
class DeviceShares:
    """Shares of the model and of its samples that one device holds."""

    samples: float
    items: float = 1.0
    weights: float = 1.0
    is_exchanged: bool = False
    """Whether gradients are copied into messages."""
    zero_stage: int = 0
    """ZeRO: optimizer state (1), gradients (2), parameters (3) are sharded among ``devices``."""
    devices: float = 1.0


@dataclass(slots=True, kw_only=True)
class LayerOperations:
    """Operations of a program that allocate and free memory, by layer."""

    forward: list[int] = field(default_factory=list)
    backward: dict[int, int] = field(default_factory=dict)
    gathered: list[tuple[int, int, int]] = field(default_factory=list)
    """Layer, operation that gathered its parameters, operation that used them."""
    last: int = NONE


def step_buffers(
    case: StrategyCase, shares: DeviceShares, operations: LayerOperations
) -> Iterator[Buffer]:
    work, options = case.work, case.options
    item_bytes = work.precision.item_bytes
    taken = shares.samples * shares.items
    held_bytes = work.weight_bytes * shares.weights

    def whole(kind: MemoryKind, size_bytes: float, since: int = NONE) -> Buffer:
        num_shards = shares.devices if shares.zero_stage >= _SHARDED_FROM.get(kind, 4) else 1
        return Buffer(kind=kind, size_bytes=size_bytes / num_shards, taken_by=since)

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
        kept = kept_bytes * restarted_items(work)
        yield whole(MemoryKind.ACTIVATION, kept, operations.forward[0])
    held = HeldItems.of(work.model)
    is_sharded = shares.zero_stage >= _SHARDED_FROM[MemoryKind.GRADIENT]
    num_shards = shares.devices if is_sharded else 1
    for index, layer in enumerate(work.model.layers):
        forward, backward = operations.forward[index], operations.backward[index]
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
                size_bytes=WEIGHT_BYTES * layer.num_parameters * shares.weights / num_shards,
                taken_by=backward,
                given_by=operations.last,
                layer=layer.name,
            )
        for op, items in (
            (forward, held.forward_transient[index]),
            (backward, held.backward_transient[index]),
        ):
            if items:
                yield Buffer(
                    kind=MemoryKind.WORKSPACE,
                    size_bytes=item_bytes * taken * int(items),
                    taken_by=op,
                    given_by=op,
                    layer=layer.name,
                )
    for index, gathered, used in operations.gathered:
        yield Buffer(
            kind=MemoryKind.PARAMETER,
            size_bytes=WEIGHT_BYTES * float(work.parameters[index]),
            taken_by=gathered,
            given_by=used,
            layer=work.model.layers[index].name,
        )


_SHARDED_FROM = {MemoryKind.OPTIMIZER: 1, MemoryKind.GRADIENT: 2, MemoryKind.PARAMETER: 3}
"""Stage of ZeRO from which each kind is sharded."""
