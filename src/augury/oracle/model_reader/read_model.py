"""Reads a Model from a built-in name, ``module:factory``, an ``nn.Module`` or a JSON file.

Modules run on torch's meta device, whose tensors have a shape but no data: nothing is computed and
no weights are held. Torch is imported only where a module is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from augury.core.errors import InputError
from augury.core.model import Model, ModelLayer
from augury.oracle.model_reader.model_file import load_model_file
from augury.oracle.models.registry import BUILT_IN, Shape, built_in

if TYPE_CHECKING:
    from torch import nn

TRACED_BATCH = 61
"""Batch size of the trace. It is a prime, so that sizes proportional to the batch can be
recognised."""
_MAX_EXTENT = 1 << 24


def load_model(what: str, *, input_shapes: Sequence[str] = ()) -> Model:
    """Loads a model from a built-in name, a file that ends in .json, or ``module:factory``.
    ``input_shapes`` has the shape of one sample of each input: ``3x224x224``, or ``128:int64`` for
    integers."""
    if what.endswith(".json"):
        return load_model_file(Path(what))
    known = built_in(what)
    if known is None and ":" not in what:
        names = ", ".join(model.name for model in BUILT_IN)
        raise InputError(
            f"there is no model {what!r}",
            remedy=f"give one of {names}, module:factory, or a .json file",
        )
    if known is None and not input_shapes:
        raise InputError(
            f"the shapes of the inputs of {what} are not known",
            remedy="give the shape of one sample, such as 3x224x224",
        )
    _require_torch()
    from augury.oracle.model_reader.meta_module import make_built_in, make_by_name

    if known is not None:
        shape = parse_shape(input_shapes[0])[0] if input_shapes else known.input_shape
        return read_module(make_built_in(known, shape), [_format_shape(shape)], name=known.name)
    return read_module(make_by_name(what), input_shapes, name=what)


def read_module(
    module: nn.Module, input_shapes: Sequence[str], *, name: str = "", batch: int = TRACED_BATCH
) -> Model:
    """Reads a module without changing it. The trace adds ``batch`` as the first dimension of each
    input."""
    _require_torch()
    name = name or type(module).__name__
    shapes = [parse_shape(text) for text in input_shapes]
    layers = _trace_layers(module, shapes, name=name, batch=batch)
    if not layers:
        raise InputError(
            f"no output of {name} depends on trainable parameters",
            remedy="give a model whose forward returns tensors that require gradients",
        )
    return Model(name=name, layers=tuple(layers), input_shape=shapes[0][0])


def _trace_layers(
    module: nn.Module, shapes: list[tuple[Shape, str]], *, name: str, batch: int
) -> list[ModelLayer]:
    import torch

    from augury.oracle.model_reader.meta_module import example_inputs, first_line, without_weights
    from augury.oracle.model_reader.module_trace import LayerTrace

    failures: list[InputError] = []
    # Some modules need real data in the tensors that forward creates; others need these tensors on
    # the meta device. Only a run shows which.
    for creates_real_tensors in (True, False):
        shape_only = without_weights(module)
        trace = LayerTrace(shape_only, example_inputs(shape_only, shapes, batch), name=name)
        try:
            with nullcontext() if creates_real_tensors else torch.device("meta"):
                return trace.run()
        except InputError:
            raise
        except Exception as error:
            failures.append(_cannot_run(name, trace.where, first_line(error)))
    raise failures[0]


def _cannot_run(name: str, where: str, why: str) -> InputError:
    return InputError(
        f"{name} cannot be run without data; in {where}: {why}",
        remedy="forward must not depend on values of tensors (item(), if on a tensor, boolean "
        "masks) and must not name a device; check the input shapes, or write the model as JSON",
    )


def parse_shape(text: str) -> tuple[Shape, str]:
    """Parses ``3x224x224`` or ``128:int64``. Returns the extents and the type of the elements."""
    found = re.fullmatch(r"(\d{1,9}(?:x\d{1,9})*)(?::(int64))?", text.strip())
    extents = tuple(int(part) for part in found.group(1).split("x")) if found else ()
    if found is None or not all(1 <= extent <= _MAX_EXTENT for extent in extents):
        raise InputError(
            f"{text!r} is not a shape", remedy="write it like 3x224x224, or 128:int64 for integers"
        )
    return extents, found.group(2) or "float"


def _format_shape(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(
            "reading a model needs PyTorch, which is not installed",
            remedy="pip install 'augury[torch]', or give the model as JSON",
        ) from error
