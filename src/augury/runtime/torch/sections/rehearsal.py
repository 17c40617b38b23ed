"""Calls of a module beside the training, with copied inputs, that leave no trace.

A section that would fail in the program's own forward or backward fails here first.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_STRUCTURE = {"_parameters", "_buffers", "_modules"}


class CannotRehearseError(Exception):
    """A module is called in a way that cannot be repeated."""


def random_states() -> tuple[Any, ...]:
    """Returns the states of the generators that programs share: torch's, Python's and numpy's."""
    numpy = sys.modules.get("numpy")
    arrays = numpy.random.get_state() if numpy is not None else None
    return torch.get_rng_state(), random.getstate(), arrays


def set_random_states(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


def changed_generator(states: tuple[Any, ...]) -> str | None:
    """Returns the library whose global random state has changed since; None: none has."""
    now = random_states()
    if not torch.equal(states[0], now[0]):
        return "torch"
    if states[1] != now[1]:
        return "Python"
    was, arrays = states[2], now[2]
    if was is not None and (was[1].tobytes() != arrays[1].tobytes() or was[2:] != arrays[2:]):
        return "numpy"
    return None


@contextmanager
def without_traces(module: Any) -> Iterator[None]:
    """Restores random states, buffers and attributes of the module and those below."""
    states = random_states()
    modules = [*module.modules()]
    attributes = [
        {name: value for name, value in vars(inner).items() if name not in _STRUCTURE}
        for inner in modules
    ]
    buffers = [
        (inner._buffers, name, buffer, buffer.clone())
        for inner in modules
        for name, buffer in inner._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for inner, known in zip(modules, attributes, strict=True):
            for name in vars(inner).keys() - known.keys() - _STRUCTURE:
                del vars(inner)[name]
            vars(inner).update(known)
        with torch.no_grad():
            for owner, name, buffer, content in buffers:
                owner[name] = buffer
                if not torch.equal(buffer, content):  # batch_norm does not count versions up
                    buffer.copy_(content)
        set_random_states(states)


def state_versions(module: Any) -> dict[tuple[int, str], tuple[int, int]]:
    """Returns identities and versions of the module's buffers and attributes: they differ after a
    change."""
    return {
        (id(inner), name): (id(value), getattr(value, "_version", 0))
        for inner in module.modules()
        for held in (vars(inner), inner._buffers)
        for name, value in held.items()
        if name not in _STRUCTURE
    }


def copied(value: Any) -> Any:
    """Returns a copy of an input, apart from the program's graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if value is None or isinstance(value, _PLAIN):
        return value
    if type(value) in (list, tuple):
        return type(value)(copied(one) for one in value)
    if type(value) is dict:
        return {name: copied(one) for name, one in value.items()}
    raise CannotRehearseError(f"it is called with a {type(value).__name__}")


def tensors_in(value: Any) -> Iterator[Any]:
    """Yields the tensors of an output, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)
    elif hasattr(value, "__dataclass_fields__"):
        for one in vars(value).values():
            yield from tensors_in(one)


def rehearse(
    module: Any,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> list[Any]:
    """Runs forward and backward of the call. Returns outputs and gradients; a gradient that there
    is not is None. Parameters of the module get no gradients."""
    own_args, own_options = copied(args), copied(options)
    torch.clear_autocast_cache()  # it holds nodes of the program's graph
    with without_traces(module), torch.enable_grad():
        outputs = [*tensors_in(call(*own_args, **own_options))]
        ends = [one for one in outputs if one.requires_grad]
        starts = [one for one in tensors_in((own_args, own_options)) if one.requires_grad]
        starts += [one for one in module.parameters() if one.requires_grad]
        found: Sequence[Any] = ()
        if ends and starts:
            given = [_uneven(one) for one in ends]
            found = torch.autograd.grad(ends, starts, given, allow_unused=True)
    torch.clear_autocast_cache()
    return [one.detach() for one in outputs] + [*found]


def _uneven(tensor: Any) -> Any:
    """Returns gradients of an output that differ from element to element."""
    given = torch.linspace(-1, 1, max(1, tensor.numel()), dtype=torch.float32)[: tensor.numel()]
    return given.reshape(tensor.shape).to(tensor.dtype)


def largest_difference(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """Returns the largest difference as a share of the largest value; infinite where the tensors
    do not correspond or are not finite."""
    if len(ones) != len(others):
        return float("inf")
    largest = difference = 0.0
    for one, other in zip(ones, others, strict=True):
        if (one is None) != (other is None):
            return float("inf")
        if one is None or not one.numel():
            continue
        if one.shape != other.shape or one.dtype != other.dtype:
            return float("inf")
        if not torch.is_floating_point(one):
            difference = max(difference, 0.0 if torch.equal(one, other) else float("inf"))
            continue
        apart = (one.float() - other.float()).abs().max().item()
        if math.isnan(apart):
            return float("inf")
        difference, largest = max(difference, apart), max(largest, one.abs().max().item())
    return difference / largest if difference else 0.0
