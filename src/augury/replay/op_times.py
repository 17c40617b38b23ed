"""Start, end and cause of each operation, as an engine returns them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import I4, I8

NO_CAUSE = -1
PENDING = -1
"""End of an operation that did not finish, and start of one that did not begin."""


@dataclass(frozen=True, slots=True, eq=False)
class OpTimes:
    """Times of all operations. ``start_ns`` is the time at which an operation got a place on its
    resource; a member of a gang progresses only when all members have a place.

    ``cause`` encodes the operation whose end allowed the start. A value >= 0 is the predecessor
    that finished last. A value <= -2 stands for operation ``-2 - cause``, which freed the place.
    NO_CAUSE means that there is no such operation. Ties go to the smallest id."""

    start_ns: I8
    end_ns: I8
    cause: I4

    @property
    def is_complete(self) -> bool:
        return bool((self.end_ns != PENDING).all())

    def copy(self) -> OpTimes:
        return OpTimes(self.start_ns.copy(), self.end_ns.copy(), self.cause.copy())

    def same_as(self, other: OpTimes) -> bool:
        return (
            np.array_equal(self.start_ns, other.start_ns)
            and np.array_equal(self.end_ns, other.end_ns)
            and np.array_equal(self.cause, other.cause)
        )


def place_cause(op: int) -> int:
    """Returns the ``cause`` of an operation that started in the place that ``op`` freed."""
    return -2 - op
