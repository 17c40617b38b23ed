"""Times of communications between otherwise idle ranks, of the kinds and sizes that the strategies
use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.groups import Mesh, Ranks
from benchmarks.testbed.strategies.layers import Convolution, Weighted

COMPUTE_S = 0.006
"""Compute before each communication, so that links have been idle and a burst passes at once."""
REPEATED = 3
ITEM_BYTES = 4


@dataclass(frozen=True)
class Message:
    """A communication of ``kind`` among ``group`` (world, pair or across); the size is that of the
    whole tensor."""

    kind: str
    group: str
    size_bytes: int


def messages(cnn: Cnn, num_ranks: int) -> list[Message]:
    """Returns every communication of the strategies for this network, each once."""
    found: dict[Message, None] = {}
    for message in _messages(cnn, num_ranks):
        found.setdefault(message)
    return list(found)


def _messages(cnn: Cnn, num_ranks: int) -> Iterator[Message]:
    model = cnn.build()
    whole = ITEM_BYTES * sum(own.numel() for own in model.parameters())
    for part in (4, 2, 1):
        yield Message("all_reduce", "world", whole // part)
    if num_ranks > 2:
        for part in (2, 1):
            yield Message("all_reduce", "pair", whole // part)
            yield Message("all_reduce", "across", whole // part)
    outputs = list(output_bytes(cnn, model))
    for layer, (taken, given) in zip(model, outputs, strict=True):
        yield Message("send", "world", given // cnn.micro_batches)
        if not isinstance(layer, Weighted):
            continue
        own = ITEM_BYTES * sum(parameter.numel() for parameter in layer.parameters())
        yield Message("all_gather_single", "world", own)
        yield Message("reduce_scatter_single", "world", own)
        yield from _layerwise("world", given)
        if num_ranks > 2:
            yield from _layerwise("pair", given // 2)
        if isinstance(layer, Convolution):
            yield from _borders(cnn, layer, taken, num_ranks)


def _layerwise(group: str, size_bytes: int) -> Iterator[Message]:
    yield Message("all_gather", group, size_bytes)
    yield Message("all_reduce", group, size_bytes)


def _borders(cnn: Cnn, layer: Convolution, taken_bytes: int, num_ranks: int) -> Iterator[Message]:
    channels = layer.weight.shape[1]
    extent = round((taken_bytes / ITEM_BYTES / cnn.batch / channels) ** 0.5)
    line = ITEM_BYTES * cnn.batch * channels * extent
    if num_ranks == 2:
        yield Message("swap", "pair", line)
        return
    yield Message("swap", "pair", line // 2)
    yield Message("swap", "across", line // 2)


def output_bytes(cnn: Cnn, model: nn.Sequential) -> Iterator[tuple[int, int]]:
    """Yields the input and output bytes of each layer for the whole batch."""
    passed = torch.empty(1, *(int(word) for word in cnn.input_shape.split("x")))
    with torch.no_grad():
        for layer in model:
            taken, passed = passed, layer(passed)
            yield tuple(ITEM_BYTES * cnn.batch * one.numel() for one in (taken, passed))


class Links:
    """Times communications. Hosts of the bed share one clock: a communication takes from the last
    begin to the last end, independent of early ranks."""

    def __init__(self, mesh: Mesh) -> None:
        self._groups = {"world": mesh.world, "pair": mesh.pair, "across": mesh.across}
        self._matrix = torch.ones(128, 128)

    def times_s(self, message: Message) -> list[float]:
        """Times several in a row with a little compute before each, as in a step; the first is not
        measured."""
        run = self._prepared(message)
        stamps = []
        for _ in range(REPEATED + 1):
            begin = monotonic()
            while monotonic() - begin < COMPUTE_S:
                self._matrix @ self._matrix
            begin = monotonic()
            run()
            stamps.append((begin, monotonic()))
            if message.kind == "send":
                dist.barrier()  # else the first rank would run ahead of the others
        last = torch.tensor(stamps[1:], dtype=torch.float64)
        dist.all_reduce(last, op=dist.ReduceOp.MAX)
        found: list[float] = (last[:, 1] - last[:, 0]).tolist()
        return found

    def _prepared(self, message: Message) -> Callable[[], object]:
        group = self._groups[message.group]
        assert isinstance(group, Ranks)
        items = max(1, message.size_bytes // ITEM_BYTES // group.size) * group.size
        whole = torch.zeros(items)
        piece = whole[: items // group.size].clone()
        match message.kind:
            case "all_reduce":
                return lambda: group.all_reduce(whole)
            case "all_gather":
                pieces = [torch.empty_like(piece) for _ in range(group.size)]
                return lambda: dist.all_gather(pieces, piece, group=group.handle)
            case "all_gather_single":
                return lambda: dist.all_gather_single(whole, piece, group=group.handle)
            case "reduce_scatter_single":
                return lambda: dist.reduce_scatter_single(piece, whole, group=group.handle)
            case "swap":
                return lambda: group.swap(whole, whole)
            case _:
                return _send(whole)


def _send(whole: Tensor) -> Callable[[], object]:
    """Every rank sends to the next one, all at once; receives are posted before."""
    rank, size = dist.get_rank(), dist.get_world_size()
    buffer = torch.empty_like(whole)
    awaited = [dist.irecv(buffer, rank - 1) for _ in range(REPEATED + 1)] if rank else []

    def run() -> None:
        if rank < size - 1:
            dist.send(whole, rank + 1)
        if awaited:
            awaited.pop(0).wait()

    return run
