"""Enumerations of a Graph and a Trace. Files store their numbers: append, never renumber."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OpKind(IntEnum):
    """Kind of work of an operation."""

    OTHER = 0
    # on a device
    FORWARD = 1
    BACKWARD = 2
    UPDATE = 3
    RECOMPUTE = 4
    DATA = 5
    COPY = 6
    LAUNCH = 7
    SYNC = 8
    # between ranks
    ALL_REDUCE = 16
    REDUCE_SCATTER = 17
    ALL_GATHER = 18
    ALL_TO_ALL = 19
    BROADCAST = 20
    REDUCE = 21
    BARRIER = 22
    SEND = 23
    RECV = 24
    PUSH = 25
    PULL = 26
    # on a parameter server
    SERVER_COPY = 32
    SERVER_SUM = 33
    SERVER_UPDATE = 34
    # without work of their own
    DELAY = 48
    MARK = 49
    UNEXPLAINED = 50
    STEP_END = 51

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def is_communication(self) -> bool:
        return OpKind.ALL_REDUCE <= self <= OpKind.PULL


def are_communication(kind: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Marks communication in a column of OpKinds."""
    found: NDArray[np.bool_] = (kind >= OpKind.ALL_REDUCE) & (kind <= OpKind.PULL)
    return found


def are_work(kind: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Marks operations that compute, load or copy in a column of OpKinds: neither communication nor
    waits, marks and unexplained time."""
    idle = (OpKind.SYNC, OpKind.DELAY, OpKind.MARK, OpKind.UNEXPLAINED, OpKind.STEP_END)
    found = ~are_communication(kind)
    for one in idle:
        found &= kind != one
    return found


class ResourceKind(IntEnum):
    """Kind of a resource, which an operation occupies while it runs."""

    OTHER = 0
    COMPUTE = 1
    COMMUNICATION = 2
    LINK_OUT = 3
    LINK_IN = 4
    HOST = 5
    SERVER = 6

    @property
    def label(self) -> str:
        return self.name.lower()


class Discipline(IntEnum):
    """Order in which a resource serves ready operations."""

    PRIORITY = 0
    FIFO = 1


class Role(IntEnum):
    WORKER = 0
    SERVER = 1

    @property
    def label(self) -> str:
        return self.name.lower()


class MemoryKind(IntEnum):
    """Content of a memory buffer."""

    OTHER = 0
    PARAMETER = 1
    GRADIENT = 2
    OPTIMIZER = 3
    ACTIVATION = 4
    COMMUNICATION = 5
    WORKSPACE = 6

    @property
    def label(self) -> str:
        return self.name.lower()


class Phase(IntEnum):
    """Part of a step that an event belongs to."""

    NONE = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    UPDATE = 4

    @property
    def label(self) -> str:
        return self.name.lower()


KIND_OF_PHASE = {
    Phase.NONE: OpKind.OTHER,
    Phase.DATA: OpKind.DATA,
    Phase.FORWARD: OpKind.FORWARD,
    Phase.BACKWARD: OpKind.BACKWARD,
    Phase.UPDATE: OpKind.UPDATE,
}
"""Phase of events without a more specific one."""


class StreamKind(IntEnum):
    """Kind of a stream, which runs events."""

    OTHER = 0
    MAIN_THREAD = 1
    THREAD = 2
    DEVICE = 3
    COMMUNICATION = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class StepState(IntEnum):
    """How a step was recorded."""

    PLAIN = 0
    """Not recorded: the job ran at full speed."""
    TIMED = 1
    """Recorded with coarse events, at little cost."""
    DETAILED = 2
    """Recorded with all events, shapes and memory; its duration does not count."""
    DISTURBED = 3
    """Disturbed by the recorder's own work, or part of the warm-up."""

    @property
    def label(self) -> str:
        return self.name.lower()
