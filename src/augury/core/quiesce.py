"""Clean cuts through a training in which communication goes on between steps.

Who has something under way adds what brings it to rest; who needs a cut that nothing straddles,
as a recorder does where its windows begin and end, calls ``rest``.
"""

from __future__ import annotations

from collections.abc import Callable

at_rest: set[Callable[[], None]] = set()


def rest() -> None:
    for action in [*at_rest]:
        action()
