from __future__ import annotations

import pickle

import pytest

from augury.core import errors
from augury.core.errors import AuguryError, DeadlockError, InputError


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [
        ("AuguryError", 1),
        ("UsageError", 2),
        ("InputError", 3),
        ("FileFormatError", 3),
        ("LimitError", 3),
        ("GraphError", 3),
        ("InfeasibleError", 4),
        ("GateError", 5),
    ],
)
def test_exit_codes_are_those_of_the_command_line(name: str, exit_code: int):
    error = getattr(errors, name)("the cause", remedy="the remedy")
    assert isinstance(error, AuguryError)
    assert error.exit_code == exit_code
    assert (str(error), error.cause, error.remedy) == ("the cause", "the cause", "the remedy")


def test_errors_of_workers_are_pickled_with_all_fields():
    error = DeadlockError("the cause", cycle=("a", "b"), remedy="the remedy")
    error.result = [1]
    error.add_note("where")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is DeadlockError
    assert (again.args, vars(again)) == (error.args, vars(error))


def test_a_remedy_is_optional():
    assert AuguryError("the cause").remedy == ""


def test_a_deadlock_carries_its_cycle():
    error = DeadlockError("circle", cycle=("a", "b"), remedy="order them")
    assert isinstance(error, InputError)
    assert (error.cycle, error.remedy, error.exit_code) == (("a", "b"), "order them", 3)
