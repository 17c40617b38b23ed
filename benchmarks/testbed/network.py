"""Hosts with a network of their own: namespaces, a bridge, links with a given rate.

Every namespace belongs to a process that sleeps in it and dies with this one, however this one
ends: no network is left behind. Control groups can be left behind; the next bed removes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.testbed.bed import DIES_WITH_US, Host, Way, in_group, start_logged
from benchmarks.testbed.cpu import PERIOD_US, ControlGroup, can_control, remove_leftovers

BURST = "256kb"
"""A smaller burst loses a fifth of 1 Gbit/s to retransmits."""
LIMIT = "8mb"
LOSSY = ("16kb", "24kb")
"""Burst and limit of a queue that drops packets of every message."""
ORDINARY = {"tcp_congestion_control": "reno", "tcp_limit_output_bytes": 262_144}


class Network:
    """``num_hosts`` hosts on one switch; a context manager. ``ordinary`` hosts override two
    settings of this machine: a connection keeps little data in the queue of a link, so that a short
    message does not wait behind a megabyte of another connection (fair queues would do the same but
    are not available everywhere); and connections do not pace by round trips (bbr), which
    underestimates a link while its other direction is full."""

    def __init__(
        self,
        num_hosts: int,
        rate: str = "1gbit",
        period_us: int = PERIOD_US,
        *,
        ordinary: bool = False,
    ) -> None:
        self.hosts: list[Host] = []
        self._is_ordinary = ordinary
        self._num_hosts = num_hosts
        self._rate = rate
        self._period_us = period_us
        self._groups: list[ControlGroup] = []
        self._sleepers: list[int] = []
        self._switch = 0
        self._names = Path("/etc/hosts")
        self._flow: subprocess.Popen[bytes] | None = None
        self._undo = ExitStack()
        self._undo.callback(self.set_flow, None)

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="augury-")))
            names = [f"{address_of(index)} host{index}" for index in range(self._num_hosts)]
            self._names = folder / "hosts"
            self._names.write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
            self._switch = self._sleep_apart("switch", folder)
            self._in(self._switch, "ip", "link", "add", "br0", "type", "bridge")
            self._in(self._switch, "ip", "link", "set", "br0", "up")
            for index in range(self._num_hosts):
                self._add_host(index, folder)
            self.set_rate(self._rate)
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def set_rate(
        self, rate: str, host: int | None = None, way: Way = "both", *, lossy: bool = False
    ) -> None:
        """Sets a rate. A queue limits outgoing traffic: the host's end what the host sends, the
        switch's end what the host receives. A lossy link has a queue that is too short."""
        burst, limit = LOSSY if lossy else (BURST, LIMIT)
        shape = ("root", "tbf", "rate", rate, "burst", burst, "limit", limit)
        for index in range(len(self.hosts)) if host is None else (host,):
            if way != "in":
                self._in(self._sleepers[index], "tc", "qdisc", "replace", "dev", "eth0", *shape)
            if way != "out":
                self._in(self._switch, "tc", "qdisc", "replace", "dev", f"v{index}", *shape)

    def set_quota(self, cores: float | None, host: int | None = None) -> None:
        for index in range(len(self.hosts)) if host is None else (host,):
            self._groups[index].set_quota(cores, self._period_us)

    def set_flow(self, mbit: int | None, source: int = 0, target: int = 0) -> None:
        """Starts other traffic between two hosts at this rate, or ends it. It uses no processor
        time of the hosts' groups."""
        if self._flow is not None:
            self._flow.kill()
            self._flow.wait()
            self._flow = None
        if mbit is None:
            return
        inside = ("nsenter", "-t", str(self._sleepers[source]), "-n", "--")
        flow = (sys.executable, "-m", "benchmarks.testbed.flow", address_of(target), str(mbit))
        self._flow = subprocess.Popen([*DIES_WITH_US, *inside, *flow], start_new_session=True)

    def start(
        self, host: int, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        inside = ("nsenter", "-t", str(self._sleepers[host]), "-n", "-m", "-u", "--")
        joined = in_group(self._groups[host], self.hosts[host].core, [*inside, *command])
        return start_logged(joined, environment, log)

    def _add_host(self, index: int, folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        sleeper = self._sleep_apart(f"host{index}", scratch)
        self._sleepers.append(sleeper)
        group = ControlGroup.make(f"host{index}")
        self._undo.callback(group.remove)
        self._groups.append(group)
        address = address_of(index)
        cable = ("link", "add", f"v{index}", "type", "veth", "peer", "name", "eth0")
        self._in(self._switch, "ip", *cable, "netns", str(sleeper))
        self._in(self._switch, "ip", "link", "set", f"v{index}", "master", "br0", "up")
        for setting in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            self._in(sleeper, "ip", *setting)
        for name, value in ORDINARY.items() if self._is_ordinary else ():
            self._in(sleeper, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}")
        self.hosts.append(
            Host(
                name=f"host{index}",
                address=address,
                interface="eth0",
                core=index % (os.cpu_count() or 1),
                scratch=scratch,
                seen_from_outside=Path(f"/proc/{sleeper}/root{scratch}"),
            )
        )

    def _sleep_apart(self, name: str, scratch: Path) -> int:
        """Starts a process in new namespaces and returns its id once they are ready."""
        arrange = (
            'hostname "$0" && mount --bind "$2" /etc/hosts && mount -t tmpfs tmpfs "$1"'
            " && echo ready && exec sleep infinity"
        )
        inside = ("sh", "-c", arrange, name, str(scratch), str(self._names))
        process = subprocess.Popen(
            [*DIES_WITH_US, "unshare", "-n", "-m", "-u", *inside],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._undo.callback(process.wait)
        self._undo.callback(process.kill)
        assert process.stdout is not None
        with process.stdout as said:
            if said.readline() != b"ready\n":
                raise OSError(f"cannot create the namespaces of {name}")
        return process.pid

    @staticmethod
    def _in(sleeper: int, *command: str) -> None:
        subprocess.run(["nsenter", "-t", str(sleeper), "-n", "--", *command], check=True)


def address_of(host: int) -> str:
    return f"10.77.0.{host + 1}"


def can_make_networks() -> bool:
    """Whether networks can be created, found by trying, since rights can be missing in
    many ways."""
    if os.geteuid() != 0 or not can_control():
        return False
    try:
        with Network(1):
            return True
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"namespaces are not available: {error}", file=sys.stderr)
        return False
