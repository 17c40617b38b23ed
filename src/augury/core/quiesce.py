"""Quiesces communication that continues between steps.

A runtime with communication in flight registers an action that completes it. A recorder calls
``quiesce`` where its windows begin and end, so that no communication crosses the boundary.
"""

from __future__ import annotations

from collections.abc import Callable

quiesce_actions: set[Callable[[], None]] = set()


def quiesce() -> None:
    for action in [*quiesce_actions]:
        action()
