"""Reports calls of the program that read tensors where no torch function mode sees it.

Compiled and scripted functions run without the mode of AccessGuard, and a forked process has
no threads that could complete what is in flight.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch


class CallListener(Protocol):
    def before_unseen_call(self) -> None: ...

    def before_modules_are_read(self) -> None: ...


_listening: weakref.WeakSet[UnseenCalls] = weakref.WeakSet()


def _before_fork() -> None:
    for calls in [*_listening]:
        calls.listener.before_unseen_call()


os.register_at_fork(before=_before_fork)  # cannot be undone


class UnseenCalls:
    """Calls ``before_unseen_call`` before compiled and scripted functions and before forks, and
    ``before_modules_are_read`` before modules are scripted or traced: torch then compiles the hooks
    of modules, too."""

    def __init__(self, listener: CallListener) -> None:
        self.listener = listener
        self._is_on = True
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
            self._replace(kind, "__call__", lambda *_: listener.before_unseen_call())
        scripting = sys.modules.get("torch.jit._recursive")
        self._replace(
            scripting, "create_script_module", lambda *_: listener.before_modules_are_read()
        )
        # Torch loads its compiler when a program makes an optimizer.
        compiler = sys.modules.get("torch._dynamo.eval_frame")
        self._replace(compiler, "_callback_from_stance", self._before_compiled)
        _listening.add(self)

    def _before_compiled(self, callback: Any = None, *_: Any) -> None:
        """``callback`` is None or False where a function runs without the compiler."""
        if callable(callback):
            self.listener.before_unseen_call()

    def _replace(self, owner: Any, name: str, before: Callable[..., None]) -> None:
        was = getattr(owner, name, None)
        if was is None:
            return

        @functools.wraps(was)
        def call(*args: Any, **options: Any) -> Any:
            if self._is_on:
                before(*args)
            return was(*args, **options)

        setattr(owner, name, call)
        self._replaced.append((owner, name, was, call))

    def remove(self) -> None:
        """Restores the functions. Where another wrapper was put around one, it stays without
        effect."""
        self._is_on = False
        _listening.discard(self)
        for owner, name, was, call in self._replaced:
            if getattr(owner, name) is call:
                setattr(owner, name, was)
