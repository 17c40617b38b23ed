"""The engine: replays a Graph into a Timeline. ``augury.replay(graph)`` calls it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augury.core.timeline import Timeline


class _CallableModule(ModuleType):
    """``augury.replay`` is this package once anything of it is imported; calling it then still
    does what the function of that name does."""

    def __call__(self, *args: Any, **options: Any) -> Timeline:
        from augury.replay.run import replay  # noqa: PLC0415

        return replay(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
