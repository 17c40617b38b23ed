"""Communications with their gradients, as autograd functions."""

# The base classes are unknown where torch is not installed for linting.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.testbed.strategies.groups import Group


class Gathered(torch.autograd.Function):
    """Concatenates pieces along ``dim``. All ranks then compute the same, so each has the whole
    gradient and takes its piece of it."""

    @staticmethod
    def forward(ctx: Any, piece: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim, ctx.length = group, dim, piece.shape[dim]
        return group.all_gather(piece.contiguous(), dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        piece = gradient.narrow(ctx.dim, ctx.group.rank * ctx.length, ctx.length)
        return piece.contiguous(), None, None


class Piece(torch.autograd.Function):
    """The reverse: takes this rank's piece of a replicated tensor; gradients are concatenated."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        length = whole.shape[dim] // group.size
        return whole.narrow(dim, group.rank * length, length).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.group.all_gather(gradient.contiguous(), ctx.dim), None, None


class Copied(torch.autograd.Function):
    """A replicated tensor of which each rank uses a part: gradients are summed."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # This product has no other user: it may be summed in place.
        ctx.group.all_reduce(gradient)
        return gradient, None


class Summed(torch.autograd.Function):
    """Sums partial results. The gradient is already replicated; it is multiplied by ``times`` where
    each rank counts a part of the loss."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, group: Group, times: int) -> Tensor:
        ctx.times = times
        ctx.mark_dirty(partial)
        group.all_reduce(partial)
        return partial

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return (gradient if ctx.times == 1 else gradient * ctx.times), None, None


class Bordered(torch.autograd.Function):
    """A tile with its neighbours' halos along ``dim``: zeros at the image's edge."""

    @staticmethod
    def forward(ctx: Any, tile: Tensor, group: Group, dim: int, before: int, after: int) -> Tensor:
        ctx.group, ctx.dim, ctx.before, ctx.after = group, dim, before, after
        length = tile.shape[dim]
        first = tile.narrow(dim, 0, after).contiguous()
        last = tile.narrow(dim, length - before, before).contiguous()
        from_before, from_after = group.swap(first, last)
        return torch.cat([from_before, tile, from_after], dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Returns the gradients of halos to the ranks that own them."""
        dim, before, after = ctx.dim, ctx.before, ctx.after
        length = gradient.shape[dim] - before - after
        to_before = gradient.narrow(dim, 0, before).contiguous()
        to_after = gradient.narrow(dim, before + length, after).contiguous()
        from_before, from_after = ctx.group.swap(to_before, to_after)
        own = gradient.narrow(dim, before, length).contiguous()
        own.narrow(dim, 0, after).add_(from_before)
        own.narrow(dim, length - before, before).add_(from_after)
        return own, None, None, None, None
