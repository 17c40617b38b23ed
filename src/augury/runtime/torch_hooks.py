"""Hooks on modules and optimizers that can be taken off, and that copies do not inherit."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class Hook(functools.partial[None]):
    """A copied or unpickled model has something in its place that does nothing, and that needs
    nothing of ours to be there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class Replaced:
    """A method of one object, called as ``by(previous, args, options)``.

    It stays a method: learning-rate schedulers look into it.
    """

    def __init__(self, owner: Any, name: str, by: Callable[..., Any]) -> None:
        self._owner, self._name = owner, name
        self._was = vars(owner).get(name)
        previous = getattr(owner, name)

        @functools.wraps(previous)
        def call(_self: Any, *args: Any, **options: Any) -> Any:
            return by(previous, args, options)

        self._method = types.MethodType(call, owner)
        setattr(owner, name, self._method)

    def remove(self) -> None:
        """Left where somebody else has wrapped it since."""
        if vars(self._owner).get(self._name) is not self._method:
            return
        if self._was is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._was)
