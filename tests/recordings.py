"""Real trainings that several tests look at, recorded once a session, by whichever process of
pytest needs one first. Tests take a copy where they change anything."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.capture import training_kinds
from tests.capture.jobs import record, torchrun

OUTPUT = "stdout.txt"


@dataclass(frozen=True, slots=True)
class Recording:
    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def output(self) -> str:
        """What the job itself printed."""
        return (self.folder / OUTPUT).read_text()


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str]) -> Recording:
    """``make`` records into ``run`` in the folder that it is given, and returns what the job
    printed. Other workers of xdist wait for it; a recording that failed is tried by each."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    root = base / "recordings"
    root.mkdir(exist_ok=True)
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = root / name
        if not (folder / OUTPUT).exists():
            folder = factory.mktemp(name)
            output = make(folder)
            (folder / OUTPUT).write_text(output)
            folder.rename(root / name)
            folder = root / name
    return Recording(folder)


def record_kind(folder: Path, kind: str, *options: str) -> str:
    done = record(folder / "run", torchrun(training_kinds.write_kind(folder, kind)), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout
