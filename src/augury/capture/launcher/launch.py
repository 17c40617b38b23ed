"""Starts a job so that its processes record themselves, and returns its exit code."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from augury.capture.bootstrap import set_defaults
from augury.capture.launcher.in_process import is_python
from augury.capture.launcher.time_modules import time_modules
from augury.capture.settings import Settings
from augury.capture.wire.pack import pack_left
from augury.capture.wire.preload import wire_environment
from augury.core.errors import UsageError

INJECTED = Path(__file__).parents[2] / "inject"


def as_program(command: Sequence[str]) -> list[str]:
    """Returns the command to start. This Python runs modules, and scripts that are not
    executable."""
    is_program = os.path.dirname(command[0]) and os.access(command[0], os.X_OK)
    return [sys.executable, *command] if is_python(command) and not is_program else [*command]


def launch(command: Sequence[str], settings: Settings, inherited: Mapping[str, str]) -> int:
    """Starts the command with the ``inherited`` variables and those of the recorder. Returns its
    exit code, or 128 + the signal that ended it, as shells do."""
    # Other launchers of this job may share the folder: each times the modules of its own ranks.
    settings = replace(settings, snapshot=f".modules-{secrets.token_hex(8)}.pickle")
    code = _run(command, recording_environment(settings, inherited))
    if settings.wire:
        pack_left(Path(settings.out))
    time_modules(settings, inherited, has_succeeded=code == 0)
    return code if code >= 0 else 128 - code


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no command {command[0]!r}", remedy="check its name and PATH"
        ) from error
    except OSError as error:
        raise UsageError(
            f"cannot start {command[0]!r}: {error.strerror}", remedy="check that it is executable"
        ) from error
    # A terminal's interrupt also reaches the child, which decides how to react.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, ended)


def recording_environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    changed = dict(inherited)
    path = changed.get("PYTHONPATH")
    changed["PYTHONPATH"] = os.pathsep.join([str(INJECTED), *([path] if path else [])])
    changed[Settings.VARIABLE] = settings.to_environment()
    set_defaults(changed)
    return changed | wire_environment(settings)
