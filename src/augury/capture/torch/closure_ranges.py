"""Profiler ranges around closures: functions that optimizers call to run forward and backward.

Torch's range of an optimizer step contains the closure. Without a range of its own, the end of
backward could not be told from the beginning of the update.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from augury.core.vocabulary.torch import CLOSURE_RANGE

if TYPE_CHECKING:
    from torch.optim import Optimizer

_Call = tuple[tuple[Any, ...], dict[str, Any]]


class ClosureRanges:
    """Between ``start`` and ``stop``, every call of a closure is a range."""

    def __init__(self) -> None:
        self._is_on = False

    def arrange(self, module: ModuleType) -> None:
        """``module`` is ``torch.optim.optimizer``. The hook stays for the whole job: a hook that
        comes and goes would let a compiled optimizer be compiled again."""
        module.register_optimizer_step_pre_hook(self._before_step)

    def start(self) -> None:
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False

    def _before_step(
        self, _optimizer: Optimizer, args: tuple[Any, ...], options: dict[str, Any]
    ) -> _Call | None:
        """Returns the arguments of the step with its closure in a range; None without a closure."""
        from torch.compiler import is_compiling

        if is_compiling() or not self._is_on:
            return None
        closure = options.get("closure")
        if callable(closure):
            return args, options | {"closure": _in_range(closure)}
        # The optimizer itself is the first argument, and the closure the second.
        if len(args) > 1 and callable(args[1]):
            return (args[0], _in_range(args[1]), *args[2:]), options
        return None


def _in_range(closure: Callable[..., Any]) -> Callable[..., Any]:
    from torch.autograd.profiler import record_function

    def within_range(*args: Any, **options: Any) -> Any:
        with record_function(CLOSURE_RANGE):
            return closure(*args, **options)

    return within_range
