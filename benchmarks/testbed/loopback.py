"""Hosts that are separate processes on loopback, with one folder each."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.testbed.bed import Host, Way, in_group, start_logged
from benchmarks.testbed.cpu import ControlGroup, can_control, remove_leftovers


class Loopback:
    """A bed for unprivileged machines: loopback only, no quotas."""

    def __init__(self, num_hosts: int) -> None:
        self.hosts: list[Host] = []
        self._num_hosts = num_hosts
        self._groups: list[ControlGroup] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="augury-")))
        if can_control():
            remove_leftovers()
        for index in range(self._num_hosts):
            scratch = folder / f"scratch{index}"
            scratch.mkdir()
            if can_control():
                self._groups.append(ControlGroup.make(f"host{index}"))
                self._undo.callback(self._groups[-1].remove)
            self.hosts.append(
                Host(
                    name=f"host{index}",
                    address="127.0.0.1",
                    interface="lo",
                    core=index % (os.cpu_count() or 1),
                    scratch=scratch,
                    seen_from_outside=scratch,
                )
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def set_rate(
        self,
        rate: str,  # noqa: ARG002
        host: int | None = None,  # noqa: ARG002
        way: Way = "both",  # noqa: ARG002
    ) -> None:
        raise OSError("the rate of loopback cannot be set")

    def set_quota(self, cores: float | None, host: int | None = None) -> None:
        if not self._groups:
            raise OSError("control groups are not available")
        for index in range(len(self.hosts)) if host is None else (host,):
            self._groups[index].set_quota(cores)

    def start(
        self, host: int, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        group = self._groups[host] if self._groups else None
        return start_logged(in_group(group, self.hosts[host].core, command), environment, log)
