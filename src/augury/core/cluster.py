"""The Cluster: hosts, the ranks on them, and the links between them."""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from augury.core.errors import InputError, LimitError, UsageError
from augury.core.files import open_regular
from augury.core.units import NS_PER_S, format_bytes

MAX_FILE_BYTES = 16 << 10
"""Largest file that is parsed: the TOML parser takes quadratic time for hostile input."""
MAX_RANKS = 1 << 20
MAX_LATENCY_NS = 60 * NS_PER_S
MAX_BANDWIDTH = 10**15


@dataclass(frozen=True, kw_only=True)
class Link:
    """Cost of one message. The sender's port is busy for the overhead and the bytes; the message
    then travels for the latency."""

    latency_ns: int
    bandwidth_bytes_per_s: int
    overhead_ns: int = 0

    def __post_init__(self) -> None:
        _within("latency_ns", self.latency_ns, 0, MAX_LATENCY_NS)
        _within("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, 1, MAX_BANDWIDTH)
        _within("overhead_ns", self.overhead_ns, 0, MAX_LATENCY_NS)

    def send_ns(self, size_bytes: int) -> int:
        """Returns the time for which the sender's port is busy, rounded up."""
        return self.overhead_ns - (-size_bytes * NS_PER_S // self.bandwidth_bytes_per_s)

    def transfer_ns(self, size_bytes: int) -> int:
        """Returns the time from the start of sending until the receiver has the whole message."""
        return self.send_ns(size_bytes) + self.latency_ns


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Hosts of equal size with one kind of link inside and one between them. Ranks fill one host
    after the other."""

    num_hosts: int
    ranks_per_host: int
    intra: Link
    inter: Link

    def __post_init__(self) -> None:
        _within("num_hosts", self.num_hosts, 1, MAX_RANKS)
        _within("ranks_per_host", self.ranks_per_host, 1, MAX_RANKS)
        _within("num_ranks", self.num_ranks, 1, MAX_RANKS)

    @property
    def num_ranks(self) -> int:
        return self.num_hosts * self.ranks_per_host

    def host_of(self, rank: int) -> int:
        if not 0 <= rank < self.num_ranks:
            raise UsageError(
                f"rank {rank} is not in a cluster of {self.num_ranks} ranks",
                remedy="add hosts or ranks per host",
            )
        return rank // self.ranks_per_host

    def link(self, a: int, b: int) -> Link:
        """Returns the link between two ranks."""
        return self.link_of_hosts(self.host_of(a), self.host_of(b))

    def link_of_hosts(self, a: int, b: int) -> Link:
        return self.intra if a == b else self.inter

    def to_toml(self) -> str:
        lines = [f"num_hosts = {self.num_hosts}", f"ranks_per_host = {self.ranks_per_host}"]
        for name, link in (("intra", self.intra), ("inter", self.inter)):
            lines += ["", f"[{name}]", *(f"{key} = {value}" for key, value in asdict(link).items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cluster:
        path = Path(path)
        data = _parsed(path, _read(path))
        _refuse_unknown(path, data, {entry.name for entry in fields(cls)})
        for name in ("intra", "inter"):
            if isinstance(data.get(name), dict):
                _refuse_unknown(path, data[name], {entry.name for entry in fields(Link)})
        try:
            return msgspec.convert(data, cls)
        except (msgspec.ValidationError, UsageError) as error:
            raise _unusable(path, str(error)) from error


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name} is {value}", remedy=f"make it {low:,} to {high:,}")


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise LimitError(
            f"{path} has more than {format_bytes(MAX_FILE_BYTES)}",
            remedy="pass a cluster description, which is a few lines of TOML",
        )
    return data


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}", remedy="correct the file") from error


def _refuse_unknown(path: Path, data: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(data.keys() - known)
    if unknown:
        raise _unusable(path, f"it does not know {unknown[0][:80]!r}")


def _unusable(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} does not describe a cluster: {why}",
        remedy="set num_hosts and ranks_per_host, and under [intra] and [inter] latency_ns,"
        " bandwidth_bytes_per_s and overhead_ns",
    )
