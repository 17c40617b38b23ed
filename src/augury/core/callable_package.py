"""Packages that can be called: ``augury.replay(graph)`` although ``augury.replay`` is a package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_TARGET = "__calls__"


class CallablePackage(ModuleType):
    """Python binds a package's name in its parent whenever a module of the package is imported, so
    a function of that name would be replaced. A package that can be called serves both uses."""

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, imported when first used; ``help`` and ``inspect`` read its signature."""
        from importlib import import_module  # noqa: PLC0415

        module, _, name = str(vars(self)[_TARGET]).partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__wrapped__(*args, **options)


def make_callable(package: str, function: str) -> None:
    """Lets a call of ``package`` call ``function``, written as ``package.module:name``."""
    module = sys.modules[package]
    vars(module)[_TARGET] = function
    module.__class__ = CallablePackage
