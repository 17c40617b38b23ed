"""A host's share of the machine: its core, and a quota of it where asked (control groups, v1)."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PREFIX = "augury-bed-"

PERIOD_US = 10_000
"""A quota stops a host for the rest of every period: a short one spreads that evenly over a step,
too short a one makes hosts that share a core take turns all the time (docs/validation.md)."""

SHARES = 16 * 1024
"""Sixteen times the usual: what else runs on the machine shall not be what is measured."""


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
        quota.write_text("-1")  # else a shorter period may be refused beside the old quota
        if cores is not None:
            (self.folder / "cpu.cfs_period_us").write_text(str(period_us))
            quota.write_text(str(round(cores * period_us)))

    def remove(self) -> None:
        """With all that still runs in it."""
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
                time.sleep(0.01)  # the dead leave their group a moment later
        raise OSError(f"processes in {self.folder} do not end")


def can_control() -> bool:
    return (CONTROLLER / "cpu.cfs_quota_us").parent.is_dir() and os.access(CONTROLLER, os.W_OK)


def remove_leftovers() -> None:
    """Of beds whose own process was killed: the kernel ends their namespaces, not these."""
    for folder in CONTROLLER.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            ControlGroup(folder).remove()
