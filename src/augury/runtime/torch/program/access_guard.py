"""Detects accesses of the program to parameters or gradients in flight, and repeated accesses.

A torch function mode sees every torch function that Python calls, with its arguments. It costs
about a microsecond per call and is active only while something is in flight.
"""

# The base class comes from a package that may be missing when linting.
# mypy: disable-error-code="misc"

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from functools import cached_property
from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, maybe_current_level
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from augury.runtime.say import say

_READ = (
    *("grad", "grad_fn", "shape", "device", "dtype", "layout", "requires_grad", "is_leaf"),
    *("is_sparse", "is_cuda", "is_cpu", "is_meta", "is_quantized", "is_nested", "is_mkldnn"),
    *("ndim", "itemsize", "nbytes", "names", "retains_grad", "_version", "_backward_hooks"),
    *("_post_accumulate_grad_hooks", "_base", "output_nr"),
)
_CALL = (
    *("size", "stride", "dim", "ndimension", "numel", "nelement", "element_size"),
    *("is_contiguous", "is_floating_point", "storage_offset", "get_device"),
    *("requires_grad_", "detach_", "register_hook", "__hash__", "__len__"),
    *("register_post_accumulate_grad_hook", "retain_grad"),
)

_NUM_TRIES = 200
ACCESSES_UNTIL_BARRIER = 3
"""Consecutive steps with an access after which every step waits for everything at that point."""

_ZEROING = frozenset({torch.Tensor.zero_, torch._foreach_zero_})
"""Functions that are harmless for gradients: a gradient that is zeroed in flight keeps its zeros. A
parameter that is zeroed after ``step`` must be updated before."""


def _harmless() -> frozenset[Any]:
    """Returns functions that do not read values of a tensor."""
    found: set[Any] = {torch.is_floating_point, torch.numel}
    for name in _READ:
        attribute = getattr(torch.Tensor, name, None)
        for way in ("__get__", "__set__"):
            if attribute is not None and hasattr(attribute, way):
                found.add(getattr(attribute, way))
    found |= {getattr(torch.Tensor, name) for name in _CALL if hasattr(torch.Tensor, name)}
    return frozenset(found)


class AccessGuard(TorchFunctionMode):
    """Calls ``on_access`` with the key of a watched tensor before the program accesses it, until
    that returns True."""

    def __init__(self, on_access: Callable[[int], bool]) -> None:
        super().__init__()
        self._on_access = on_access
        self._harmless = _harmless()
        self.watched: dict[int, int] = {}
        """Keys by the ``id`` of tensors, which must outlive the entry."""
        self.may_be_zeroed: Container[int] = ()
        """Ids of the watched tensors that are gradients."""
        self.num_calls = 0

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_calls += 1
        if self.watched:
            self._look(func, args)
            if kwargs:
                self._look(func, kwargs.values())
        return func(*args, **kwargs) if kwargs else func(*args)

    def _look(self, func: Any, args: Iterable[Any]) -> None:
        watched = self.watched
        is_transformed = maybe_current_level() is not None
        for arg in args:
            if is_transformed:
                arg = _unwrapped(arg)  # noqa: PLW2901
            if id(arg) in watched:
                if func in self._harmless or (func in _ZEROING and id(arg) in self.may_be_zeroed):
                    continue
                if self._on_access(watched[id(arg)]):
                    watched.pop(id(arg), None)
            elif type(arg) is list or type(arg) is tuple:
                self._look(func, arg)

    def start(self) -> None:
        """Enters the mode below those of the program, which leaves them in its own order, but above
        the mode of a default device, which must be the lowest."""
        if not self._is_there():
            above = _take_off()
            if above and isinstance(above[-1], DeviceContext):
                _put_on([above.pop()])
            _put_on([*above, self])

    def stop(self) -> None:
        self.watched.clear()
        if self._is_there():
            _put_on([mode for mode in _take_off() if mode is not self])

    @cached_property
    def call_ns(self) -> int:
        """Approximate cost of the guard per call. It is measured while nothing is in flight, since
        the kernel's network work counts for the thread that it interrupts."""
        idle = AccessGuard(self._on_access)
        idle.watched = {0: 0}
        tensor = torch.zeros(1)

        def timed() -> int:
            began_ns = time.thread_time_ns()
            for _ in range(_NUM_TRIES):
                tensor.dim()
            return time.thread_time_ns() - began_ns

        with torch._C.DisableTorchFunction():
            plain_ns = timed()
        with idle:
            return max(0, timed() - plain_ns) // _NUM_TRIES

    def _is_there(self) -> bool:
        return any(
            torch._C._get_function_stack_at(n) is self
            for n in range(torch._C._len_torch_function_stack())
        )


def _unwrapped(arg: Any) -> Any:
    """Returns the tensor within the wrappers of function transforms, as ``torch.func.grad``."""
    while isinstance(arg, torch.Tensor) and is_functorch_wrapped_tensor(arg):
        arg = get_unwrapped(arg)
    return arg


def _take_off() -> list[Any]:
    """Returns the modes, the uppermost first."""
    return [
        torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())
    ]


def _put_on(modes: list[Any]) -> None:
    for mode in reversed(modes):
        torch._C._push_on_torch_function_stack(mode)


class AccessPattern:
    """Whether the program accesses tensors in flight in every step, or only occasionally."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._num_steps = 0
        self._was_accessed = False
        self.barrier: str | None = None
        """The point after which every step waits for everything: ``backward`` or ``step``."""

    def note(self, when: str) -> None:
        """Notes an access after ``backward`` or ``step``."""
        if self._was_accessed or self.barrier is not None:
            return
        self._was_accessed = True
        self._num_steps += 1
        if self._num_steps == ACCESSES_UNTIL_BARRIER:
            self.barrier = when
            what = "gradients" if when == "backward" else "parameters"
            say(
                f"the program reads {what} between steps: "
                f"from now on every step waits for all gradients after {when}",
                rank=self._rank,
            )

    def end_step(self) -> None:
        if not self._was_accessed:
            self._num_steps = 0
        self._was_accessed = False
