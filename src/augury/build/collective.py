"""What every communication scheme looks like from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from augury.build.ports import Ports
from augury.core.builder import GraphBuilder


class Collective(Protocol):
    """Adds one communication of the members of ``ports``. ``after`` names, for every member in
    order, the operation that its contribution waits for; the answer names, for every member,
    the operation whose end says that it has the result."""

    def __call__(
        self,
        builder: GraphBuilder,
        ports: Ports,
        *,
        size_bytes: int,
        after: Sequence[int],
        name: str,
        step: int = 0,
        priority: int = 0,
    ) -> list[int]: ...
