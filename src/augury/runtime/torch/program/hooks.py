"""Removable hooks on modules, gradients and optimizers that copies do not inherit."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any


class Hook(functools.partial[None]):
    """A hook that copies and unpickles as a function that does nothing and does not need Augury."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class ReplacedMethod:
    """Replaces a method of one object by ``by(previous, args, options)``.

    It stays a bound method: learning-rate schedulers inspect it.
    """

    def __init__(self, owner: Any, name: str, by: Callable[..., Any]) -> None:
        self._owner, self._name = owner, name
        self._was = vars(owner).get(name)
        previous = getattr(owner, name)

        @functools.wraps(previous)
        def call(_self: Any, *args: Any, **options: Any) -> Any:
            if self._was is None:  # the program may have replaced the method of the class
                return by(getattr(type(owner), name).__get__(owner), args, options)
            return by(previous, args, options)

        self._method = types.MethodType(call, owner)
        setattr(owner, name, self._method)

    def remove(self) -> None:
        """Restores the method, unless another wrapper was put around it."""
        if vars(self._owner).get(self._name) is not self._method:
            return
        if self._was is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._was)


class ModuleHooks:
    """Calls a function before the forwards of modules, with one argument per module. The hooks can
    be removed for a while: torch's attention uses another kernel where modules have no hooks."""

    def __init__(self, given: Iterable[tuple[Any, Any]], call: Callable[..., None]) -> None:
        self._given = [*given]
        self._call = call
        self._handles: list[Any] = []
        self.attach()

    def attach(self) -> None:
        if not self._handles:
            self._handles = [
                module.register_forward_pre_hook(Hook(self._call, one), prepend=True)
                for module, one in self._given
            ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class GradientHooks:
    """Calls a function for each gradient, after all other hooks of its parameter, as DDP does."""

    def __init__(self, parameters: Iterable[Any], hook: Callable[[Any], None]) -> None:
        self._hook = hook
        self._parameters = [*parameters]
        self._handles: dict[int, Any] = {}
        self.keep_last()

    def keep_last(self) -> None:
        """Moves the hooks behind hooks that were registered since, and skips frozen parameters."""
        for place, parameter in enumerate(self._parameters):
            handle = self._handles.get(place)
            if handle is not None:
                if next(reversed(parameter._post_accumulate_grad_hooks), None) == handle.id:
                    continue
                handle.remove()
            if parameter.requires_grad:
                self._handles[place] = parameter.register_post_accumulate_grad_hook(self._hook)

    def remove(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
