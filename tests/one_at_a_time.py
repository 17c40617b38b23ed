"""Tests that start processes that train: all by one worker of xdist, one at a time, or they would
keep each other from the cores."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

_FOLDERS = ("capture", "runtime", "validate", "trainers")
_MODULES = (
    "test_real_runs.py",
    "test_real_memory.py",
    "test_wire_real.py",
    "test_wire_clocks_real.py",
    "test_fine.py",
    "test_real_strategies.py",
    "test_demo.py",
    "test_full_disk.py",
    "test_real_diagnoses.py",
    "test_repeats.py",
)


def starts_training(nodeid: str) -> bool:
    path = PurePosixPath(nodeid.partition("::")[0])
    return path.parts[1] in _FOLDERS or path.name in _MODULES


class OneAtATime(LoadScopeScheduling):
    """Distributes those tests as one group, which starts first, and all others one by one.

    Marks of groups would say the same, but pytest-xdist 3.8 ignores them under pytest 9.2: it adds
    them to an attribute of the test that pytest no longer reads.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "processes" if starts_training(nodeid) else nodeid
