"""Notices whether a model communicates in its forward.

Such a forward cannot be rehearsed: where it fails on one rank, the others would wait.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from augury.runtime.torch.sections.module_calls import Call

COMMUNICATES = "the model communicates in its forward"


class CollectiveWatch:
    """A layer around the whole model that watches its first training forward."""

    is_compiled = False

    def __init__(self) -> None:
        self.is_over = False
        """Whether a forward was watched."""
        self.has_seen = False
        """Whether it called a collective."""

    def run(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.is_over:
            return call(*args, **options)
        noted = _Collectives()
        with noted:
            result = call(*args, **options)
        self.is_over, self.has_seen = True, noted.has_seen
        return result


class _Collectives(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.has_seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in str(getattr(func, "namespace", "")):
            self.has_seen = True
        return func(*args, **(kwargs or {}))
