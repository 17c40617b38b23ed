"""The closed vocabularies of a Graph. Files hold their numbers: append, never renumber."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OpKind(IntEnum):
    """What an operation does."""

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

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def is_communication(self) -> bool:
        return OpKind.ALL_REDUCE <= self <= OpKind.PULL


def are_communication(kind: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Of a column of OpKinds."""
    found: NDArray[np.bool_] = (kind >= OpKind.ALL_REDUCE) & (kind <= OpKind.PULL)
    return found


class ResourceKind(IntEnum):
    """What an operation occupies while it runs."""

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
    """How a resource chooses among the operations that are ready."""

    PRIORITY = 0
    FIFO = 1


class Role(IntEnum):
    WORKER = 0
    SERVER = 1

    @property
    def label(self) -> str:
        return self.name.lower()


class MemoryKind(IntEnum):
    """What a piece of memory holds."""

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
    """Which part of a step an event belongs to."""

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
"""Of what says nothing more of itself."""


class StreamKind(IntEnum):
    """What runs a stream's events."""

    OTHER = 0
    MAIN_THREAD = 1
    THREAD = 2
    DEVICE = 3
    COMMUNICATION = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class StepState(IntEnum):
    """How a step was watched."""

    PLAIN = 0
    """Not at all: the job at full speed."""
    TIMED = 1
    """Coarse events, which hardly cost time."""
    DETAILED = 2
    """All events, with shapes and memory: not to be timed."""
    DISTURBED = 3
    """The recorder itself was at work in it, or the job was warming up."""

    @property
    def label(self) -> str:
        return self.name.lower()
