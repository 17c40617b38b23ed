"""What an engine returns: when every operation ran, and what it had waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import I4, I8

NO_CAUSE = -1
PENDING = -1
"""The end of an operation that never finished, and the start of one that never began."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """``start_ns`` is when a place was granted; a gang's member progresses from the moment the
    last of its peers was granted. ``cause`` is what ended when the operation became able to
    start: >= 0 the predecessor that finished last, <= -2 the operation that had held its place
    (``-2 - cause``), NO_CAUSE for neither. Ties go to the smallest id."""

    start_ns: I8
    end_ns: I8
    cause: I4

    @property
    def is_complete(self) -> bool:
        return bool((self.end_ns != PENDING).all())

    def copy(self) -> Schedule:
        return Schedule(self.start_ns.copy(), self.end_ns.copy(), self.cause.copy())

    def same_as(self, other: Schedule) -> bool:
        return (
            np.array_equal(self.start_ns, other.start_ns)
            and np.array_equal(self.end_ns, other.end_ns)
            and np.array_equal(self.cause, other.cause)
        )


def place_cause(op: int) -> int:
    """Encodes *it waited for the place that op held*."""
    return -2 - op
