"""Modules on torch's meta device: shapes without weights."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from augury.core.errors import InputError
from augury.oracle.models.registry import BuiltIn, Shape

_META = "meta"


def make_built_in(model: BuiltIn, input_shape: Shape) -> nn.Module:
    try:
        with torch.device(_META):
            return model.make(input_shape)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise InputError(
            f"{model.name} cannot take inputs of {'x'.join(map(str, input_shape))}: "
            f"{first_line(error)}",
            remedy=f"give a shape like {'x'.join(map(str, model.input_shape))}",
        ) from error


def make_by_name(what: str) -> nn.Module:
    """Makes the module of ``module:factory``, imported from the path or the working directory."""
    where, _, attributes = what.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        factory: Any = import_module(where)
        for attribute in attributes.split("."):
            factory = getattr(factory, attribute)
        made = factory if isinstance(factory, nn.Module) else _call(factory)
    except Exception as error:
        raise InputError(
            f"cannot make a model by {what}: {type(error).__name__}: {first_line(error)}",
            remedy="name a module that Python finds from here, and in it a function or class "
            "that makes the model without arguments",
        ) from error
    finally:
        sys.path.remove(here)
    if not isinstance(made, nn.Module):
        raise InputError(
            f"{what} makes a {type(made).__name__}", remedy="let it make a torch.nn.Module"
        )
    return made


def _call(factory: Any) -> Any:
    try:
        with torch.device(_META):
            return factory()
    except Exception:
        # Some factories compute with tensors, which needs real ones.
        return factory()


def without_weights(module: nn.Module) -> nn.Module:
    """Returns a copy in training mode that has shapes only; the module itself is not changed."""
    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(_shape_of(parameter), requires_grad=parameter.requires_grad)
        for parameter in module.parameters()
    }
    plain = [
        value
        for inner in module.modules()
        for value in vars(inner).values()
        if isinstance(value, Tensor)
    ]
    memo |= {id(tensor): _shape_of(tensor) for tensor in (*module.buffers(), *plain)}
    try:
        shapes = copy.deepcopy(module, memo)
    except Exception as error:
        raise InputError(
            f"a {type(module).__name__} cannot be copied: {first_line(error)}",
            remedy="name a function that makes it, as module:factory",
        ) from error
    return shapes.train()


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=_META)


def example_inputs(
    module: nn.Module, shapes: Sequence[tuple[Shape, str]], batch: int
) -> list[Tensor]:
    """Makes example inputs; floating-point ones have the type of the parameters."""
    own = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    kinds = {"float": next(own, torch.float32), "int64": torch.int64}
    return [
        torch.empty((batch, *extents), dtype=kinds[numbers], device=_META)
        for extents, numbers in shapes
    ]


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
