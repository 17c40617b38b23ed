"""The order in which backward computes gradients, observed in one step of the detailed window.

DDP logs this order only where it rebuilds its buckets; with ``find_unused_parameters`` it never
does. The observed order also shows the parameters that get no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.parallel import DistributedDataParallel


class GradientOrder:
    """Between ``start`` and ``stop``, notes which gradients of each model are accumulated."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._ready: dict[int, dict[int, None]] = {}
        """Indices of parameters in the order of their gradients, by ``id`` of the model."""

    def start(self, models: Sequence[DistributedDataParallel]) -> None:
        self._ready = {id(model): {} for model in models}
        for model in models:
            for index, parameter in enumerate(reduced_parameters(model)):
                with suppress(Exception):  # a parameter that is computed from others
                    hook = partial(self._note, self._ready[id(model)], index)
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def of(self, model: DistributedDataParallel) -> list[int]:
        """Returns the order in the last observed backward of a model; empty if unknown."""
        return [*self._ready.get(id(model), {})]

    @staticmethod
    def _note(ready: dict[int, None], index: int, _parameter: Tensor) -> None:
        if index in ready:
            ready.clear()  # another backward, of the next micro-batch
        ready[index] = None


def reduced_parameters(model: DistributedDataParallel) -> list[Any]:
    """Returns the parameters in the order in which DDP numbers them."""
    return [parameter for parameter in model._module_parameters if parameter.requires_grad]
