"""A host's share of the machine: a core, and optionally a quota of it (control groups, v1)."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PREFIX = "augury-bed-"

PERIOD_US = 10_000
"""A quota stops a host for the rest of every period. A short period spreads this evenly over a
step; too short a period makes hosts that share a core alternate constantly (docs/validation.md)."""

SHARES = 16 * 1024
"""Sixteen times the usual weight, so that other processes on the machine disturb
measurements less."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    folder: Path

    @classmethod
    def make(cls, name: str) -> ControlGroup:
        group = cls(CONTROLLER / f"{PREFIX}{os.getpid()}-{name}")
        group.folder.mkdir()
        (group.folder / "cpu.shares").write_text(str(SHARES))
        return group

    @property
    def members(self) -> Path:
        """The file into which a process writes its id to join."""
        return self.folder / "cgroup.procs"

    def set_quota(self, cores: float | None, period_us: int = PERIOD_US) -> None:
        quota = self.folder / "cpu.cfs_quota_us"
        quota.write_text("-1")  # else a shorter period may be refused together with the old quota
        if cores is not None:
            (self.folder / "cpu.cfs_period_us").write_text(str(period_us))
            quota.write_text(str(round(cores * period_us)))

    def remove(self) -> None:
        """Removes the group and ends all processes in it."""
        for _ in range(200):
            for pid in self.members.read_text().split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.01)  # ended processes leave their group a moment later
        raise OSError(f"processes in {self.folder} did not end")


def can_control() -> bool:
    return (CONTROLLER / "cpu.cfs_quota_us").parent.is_dir() and os.access(CONTROLLER, os.W_OK)


def remove_leftovers() -> None:
    """Removes groups of beds whose own process was killed: the kernel ends their namespaces, not
    these."""
    for folder in CONTROLLER.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            ControlGroup(folder).remove()
