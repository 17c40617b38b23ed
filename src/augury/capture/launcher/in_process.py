"""Recording of the current process, for launchers that have already started it as one rank."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from augury.capture.settings import Settings


def is_rank() -> bool:
    return "RANK" in os.environ


def is_python(command: Sequence[str]) -> bool:
    """Whether this is a script (``train.py ...``) or a module (``-m package.train ...``)."""
    return command[0] == "-m" or Path(command[0]).suffix == ".py"


def arrange_here(settings: Settings) -> None:
    from augury.capture.bootstrap import arrange, set_defaults

    set_defaults(os.environ)
    arrange(settings)


def run_python(command: Sequence[str]) -> None:
    """Runs the command in this process as ``python COMMAND...`` would; its exceptions propagate."""
    if command[0] == "-m":
        sys.argv[:] = command[1:]
        _lead_the_path(os.getcwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = command
        _lead_the_path(os.path.dirname(os.path.realpath(command[0])))
        runpy.run_path(command[0], run_name="__main__")


def exit_code_of(end: SystemExit) -> int:
    """Returns the exit code by Python's rules: a message means failure."""
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def tell_uncaught(error: Exception) -> None:
    """Prints the error as Python does, without the frames between here and the program."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_globals.get("__name__", "")):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _is_ours(module: str) -> bool:
    return module == "runpy" or module.startswith("augury.")


def _lead_the_path(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder
