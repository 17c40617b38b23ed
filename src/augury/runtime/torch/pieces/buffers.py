"""The memory from which gradients are sent and in which they arrive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from augury.core.enums import OpKind
from augury.core.plan.plan import HALF_MESSAGE_BYTES, Order
from augury.core.plan.problem import Problem
from augury.runtime.piece_layout import PieceLayout, lay_out


@dataclass(frozen=True, slots=True)
class Half:
    """A part of a piece, the shares of all ranks of it, and their sum, which is this rank's own."""

    whole: Any
    shares: Any
    own: Any


class GradientMemory:
    """One flat memory with views as pieces, as whole gradients where these are contiguous, and as
    slices of the other gradients."""

    def __init__(self, layout: PieceLayout, order: Order, parameters: list[Any]) -> None:
        self._bytes = torch.zeros(layout.size_bytes, dtype=torch.uint8)
        self.pieces: list[Any] = []
        for number, piece in enumerate(order.pieces):
            if piece.op is OpKind.ALL_GATHER:
                self.pieces.append(self.pieces[piece.after])
            else:
                at, size_bytes = layout.piece_at[number]
                dtype = parameters[piece.slices[0].gradient].dtype
                self.pieces.append(self._bytes[at : at + size_bytes].view(dtype))
        self.whole = [self._view(layout, n, p) for n, p in enumerate(parameters)]
        self.slices = [
            [] if whole is not None else self._slices(layout, n, parameters[n])
            for n, whole in enumerate(self.whole)
        ]
        """First and last item of each slice, and its view."""

    def _view(self, layout: PieceLayout, number: int, parameter: Any) -> Any:
        at = layout.whole_at(number)
        if at is None:
            return None
        flat = self._bytes[at : at + parameter.nbytes].view(parameter.dtype)
        return flat.as_strided(parameter.size(), _strides(parameter), flat.storage_offset())

    def _slices(
        self, layout: PieceLayout, number: int, parameter: Any
    ) -> list[tuple[int, int, Any]]:
        item = parameter.element_size()
        return [
            (
                part.offset_bytes // item,
                (part.offset_bytes + part.size_bytes) // item,
                self._bytes[part.at_bytes : part.at_bytes + part.size_bytes].view(parameter.dtype),
            )
            for part in layout.parts[number]
        ]


class PieceBuffers:
    """``pieces`` are flat tensors, one for each piece of the order; an all-gather has the tensor of
    its reduce-scatter. Gradients are given by their index in the Problem.

    Sums arrive in the memory of the shares. With ``apart``, they have memory of their own, and
    those of the next step have a third one: they may arrive before this step's sums are used."""

    def __init__(
        self,
        problem: Problem,
        order: Order,
        parameters: list[Any],
        num_ranks: int,
        *,
        apart: bool = False,
    ) -> None:
        self.is_apart = apart
        # DDP multiplies by this too, instead of dividing: results must be equal to the bit.
        self._share = 1.0 / num_ranks
        layout = lay_out(problem, order, num_ranks)
        self._shares = GradientMemory(layout, order, parameters)
        self._sums = self._next = self._shares
        if apart:
            self._sums = GradientMemory(layout, order, parameters)
            self._next = GradientMemory(layout, order, parameters)
        self.halves: dict[int, list[Half]] = {}
        """The messages of a REDUCE_SCATTER and of its ALL_GATHER."""
        for number, piece in enumerate(order.pieces):
            if piece.op is OpKind.REDUCE_SCATTER:
                self.halves[number] = _halves(self.pieces[number], num_ranks)
            elif piece.op is OpKind.ALL_GATHER:
                self.halves[number] = self.halves[piece.after]
        self._joined: list[Any] = [
            None if whole is not None else torch.empty_strided(p.size(), _strides(p), dtype=p.dtype)
            for p, whole in zip(parameters, self._shares.whole, strict=True)
        ]

    @property
    def pieces(self) -> list[Any]:
        return self._shares.pieces

    @property
    def arriving(self) -> list[Any]:
        """Memory in which the pieces of this step arrive."""
        return self._sums.pieces

    @property
    def next_arriving(self) -> list[Any]:
        return self._next.pieces

    def turn(self) -> None:
        """Begins the next step: swaps the memories of arrivals."""
        self._sums, self._next = self._next, self._sums

    def put(self, number: int, gradient: Any) -> None:
        """Stores this rank's share of a gradient."""
        whole = self._shares.whole[number]
        if whole is not None:
            torch.mul(gradient, self._share, out=whole)
            return
        flat = self._flat(number, gradient)
        for first, last, place in self._shares.slices[number]:
            torch.mul(flat[first:last], self._share, out=place)

    def spoil(self, pieces: Iterable[int]) -> None:
        """Makes the sums of these pieces NaN on all ranks."""
        for number in pieces:
            self.pieces[number].fill_(float("nan"))

    def reduced(self, number: int) -> Any:
        """Returns the sum of a gradient in the shape of its parameter, valid until the next
        backward."""
        whole = self._sums.whole[number]
        if whole is not None:
            return whole
        joined = self._joined[number]
        flat = joined.as_strided((joined.numel(),), (1,))
        for first, last, place in self._sums.slices[number]:
            flat[first:last] = place
        return joined

    def _flat(self, number: int, gradient: Any) -> Any:
        joined = self._joined[number]
        if gradient.stride() != joined.stride():
            gradient = joined.copy_(gradient)
        return gradient.as_strided((gradient.numel(),), (1,))


def _halves(tensor: Any, num_ranks: int) -> list[Half]:
    size = max(1, HALF_MESSAGE_BYTES // tensor.element_size() // num_ranks) * num_ranks
    shares = torch.empty_like(tensor)
    own = torch.empty(tensor.numel() // num_ranks, dtype=tensor.dtype)
    return [
        Half(
            tensor[first : first + size],
            shares[first : first + size].view(num_ranks, -1),
            own[first // num_ranks : (first + size) // num_ranks],
        )
        for first in range(0, tensor.numel(), size)
    ]


def _strides(parameter: Any) -> tuple[int, ...]:
    """Returns the strides of the parameter where it is dense, in any order; else row-major ones."""
    if torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return tuple(parameter.stride())
    return tuple(torch.empty(parameter.size(), device="meta").stride())
