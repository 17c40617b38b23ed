"""The tree of errors. Each has a message, a remedy and an exit code."""

from __future__ import annotations

from typing import Any, ClassVar


class AuguryError(Exception):
    """Shown to the user as one message, never as a traceback."""

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, *, remedy: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.result: object = None
        """Partial result, which becomes part of the JSON document that reports the error."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors of workers are pickled; constructors of subclasses need more than the cause."""
        return _restore, (type(self), self.args, dict(vars(self)))


class UsageError(AuguryError):
    exit_code = 2


class InputError(AuguryError):
    """The input cannot be used: damaged, hostile, unsupported or contradictory."""

    exit_code = 3


class FileFormatError(InputError):
    """The file has a format that this version of Augury cannot read."""


class LimitError(InputError):
    """Reading the file would exceed the stated limit."""


class GraphError(InputError):
    """The graph violates its specification."""


class DeadlockError(InputError):
    """Operations wait for each other in a cycle; ``cycle`` names them."""

    def __init__(self, cause: str, *, cycle: tuple[str, ...], remedy: str = "") -> None:
        super().__init__(cause, remedy=remedy)
        self.cycle = cycle


class DefectError(AuguryError):
    """Augury produced an invalid result: a defect of Augury, not of the input."""


class InfeasibleError(AuguryError):
    """No plan satisfies the constraints."""

    exit_code = 4


class GateError(AuguryError):
    """A stated accuracy or regression gate failed."""

    exit_code = 5


def _restore(kind: type[AuguryError], args: tuple[Any, ...], fields: dict[str, Any]) -> AuguryError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error
