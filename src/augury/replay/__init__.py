"""The replay engine: simulates a Graph and returns its Timeline (``augury.replay(graph)``)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augury.core.timeline import Timeline


class _CallableModule(ModuleType):
    """Makes this package callable. ``augury.replay`` is this package after an import of any of its
    modules, and calling it must still replay a graph."""

    def __call__(self, *args: Any, **options: Any) -> Timeline:
        from augury.replay.run import replay  # noqa: PLC0415

        return replay(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
