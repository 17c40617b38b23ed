"""The interface of a test bed, and how processes start on its hosts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from benchmarks.testbed.cpu import ControlGroup

Way = Literal["both", "out", "in"]
"""Direction of a host's link: outgoing, incoming, or both."""

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    address: str
    interface: str
    core: int
    scratch: Path
    """Node-local folder: the same path leads to a different folder on every host."""
    seen_from_outside: Path
    """The same folder, as seen from outside of the host."""


class Bed(Protocol):
    """The test bed interface that validation uses."""

    hosts: list[Host]

    def set_rate(self, rate: str, host: int | None = None, way: Way = "both") -> None:
        """Sets the rate of one host's link, or of all: ``1gbit``, ``200mbit``. Jobs may be
        running."""

    def set_quota(self, cores: float | None, host: int | None = None) -> None: ...

    def start(
        self, host: int, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def in_group(group: ControlGroup | None, core: int, command: Sequence[str]) -> list[str]:
    pinned = ["taskset", "-c", str(core), *command]
    if group is None:
        return pinned
    join = 'echo $$ > "$0" && exec "$@"'
    return [*DIES_WITH_US, "sh", "-c", join, str(group.members), *pinned]


def start_logged(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own, so that all its children can be ended with it."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
