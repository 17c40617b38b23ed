"""One tree of errors; each says what is wrong, how to go on, and which exit code it means."""

from __future__ import annotations

from typing import ClassVar


class AuguryError(Exception):
    """Shown to the user as one message, never as a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, *, remedy: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.result: object = None
        """What was found all the same: as JSON it is part of the document that tells the error."""


class UsageError(AuguryError):
    exit_code = 2


class InputError(AuguryError):
    """The input cannot be used: damaged, hostile, unsupported or contradictory."""

    exit_code = 3


class FileFormatError(InputError):
    """Not a file that this version of Augury can read."""


class LimitError(InputError):
    """Reading it would take more than the stated cap."""


class GraphError(InputError):
    """The graph breaks its own specification."""


class DeadlockError(InputError):
    """Operations wait for each other in a circle; ``cycle`` names them."""

    def __init__(self, cause: str, *, cycle: tuple[str, ...], remedy: str = "") -> None:
        super().__init__(cause, remedy=remedy)
        self.cycle = cycle


class DefectError(AuguryError):
    """Augury made something that cannot be right: neither the user nor the input is to blame."""


class InfeasibleError(AuguryError):
    """No plan satisfies the constraints."""

    exit_code = 4


class GateError(AuguryError):
    """A stated accuracy or regression gate failed."""

    exit_code = 5
