"""Clusters as TOML files: loading, saving, and the presets of the package.

There are two layouts: ``[[level]]`` tables with an optional device, or the short one of equal
hosts (``num_hosts``, ``ranks_per_host``, ``[intra]``, ``[inter]``). A file is hostile input.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from augury.core.cluster.cluster import Cluster, Link, NetworkLevel
from augury.core.cluster.device import Device
from augury.core.errors import InputError, LimitError, UsageError
from augury.core.files import new_file, open_regular
from augury.core.units import format_bytes

T = TypeVar("T")

PRESETS = ("abci", "v100", "a100", "h100", "mi300x", "cpu")
"""Names of the files in ``presets/``."""

MAX_FILE_BYTES = 16 << 10
"""A description has a few lines; the TOML parser takes quadratic time for hostile files."""

_LEVELS_REMEDY = (
    "give one [[level]] after the other and, for the oracle, [device]; docs/oracle.md has an"
    f" example, and presets are {', '.join(PRESETS)}"
)
_HOSTS_REMEDY = (
    "give num_hosts, ranks_per_host, and under [intra] and [inter] latency_ns,"
    " bandwidth_bytes_per_s and overhead_ns"
)


class _LevelsLayout(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str = "cluster"
    device: dict[str, Any] | str | None = None
    level: list[dict[str, Any]]
    price_per_device_hour: float | None = None
    input_bandwidth_bytes_per_s: float | None = None

    def cluster(self) -> Cluster:
        return Cluster(
            name=self.name,
            device=None if self.device is None else _device(self.device),
            levels=tuple(_convert(level, NetworkLevel) for level in self.level),
            price_per_device_hour=self.price_per_device_hour,
            input_bandwidth_bytes_per_s=self.input_bandwidth_bytes_per_s,
        )


class _HostsLayout(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    num_hosts: int
    ranks_per_host: int
    intra: dict[str, Any]
    inter: dict[str, Any]

    def cluster(self) -> Cluster:
        return Cluster.of_hosts(
            num_hosts=self.num_hosts,
            ranks_per_host=self.ranks_per_host,
            intra=_convert(self.intra, Link),
            inter=_convert(self.inter, Link),
        )


def find_cluster(name_or_path: str | os.PathLike[str]) -> Cluster:
    """Returns the preset of that name, or loads the TOML file."""
    name = os.fspath(name_or_path).lower()
    return _preset(name) if name in PRESETS else load_cluster(name_or_path)


def load_cluster(path: str | os.PathLike[str]) -> Cluster:
    path = Path(path)
    data = _parse_file(path)
    has_hosts = not data.keys().isdisjoint(_HostsLayout.__struct_fields__)
    layout: type[_LevelsLayout | _HostsLayout] = _HostsLayout if has_hosts else _LevelsLayout
    try:
        return msgspec.convert(data, layout).cluster()
    except (msgspec.ValidationError, UsageError, InputError) as error:
        raise InputError(
            f"{path} does not describe a cluster: {error}",
            remedy=_HOSTS_REMEDY if has_hosts else _LEVELS_REMEDY,
        ) from error


def save_cluster(cluster: Cluster, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Writes the layout with levels."""
    with new_file(Path(path), force=force) as file:
        file.write("\n".join([*_toml_lines(cluster), ""]).encode())


def _toml_lines(cluster: Cluster) -> Iterator[str]:
    yield from _toml_fields(
        {
            "name": cluster.name,
            "price_per_device_hour": cluster.price_per_device_hour,
            "input_bandwidth_bytes_per_s": cluster.input_bandwidth_bytes_per_s,
        }
    )
    if cluster.device is not None:
        fields = asdict(cluster.device)
        flops_per_s = fields.pop("flops_per_s")
        yield from ("", "[device]", *_toml_fields(fields))
        yield from ("", "[device.flops_per_s]", *_toml_fields(flops_per_s))
    for level in cluster.levels:
        yield from ("", "[[level]]", *_toml_fields(asdict(level)))


def _toml_fields(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if value is not None:
            # Strings of JSON are strings of TOML, but for one control character.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            yield f"{name} = {text}"


def _device(stated: dict[str, Any] | str) -> Device:
    """Device of a table, or of the preset that a string names."""
    if isinstance(stated, dict):
        return _convert(stated, Device)
    name = stated.lower()
    if name not in PRESETS:
        raise InputError(f"there is no device {stated[:80]!r} among the presets")
    return _preset(name).described_device


@cache
def _preset(name: str) -> Cluster:
    return load_cluster(Path(__file__).with_name("presets") / f"{name}.toml")


def _convert(data: dict[str, Any], kind: type[T]) -> T:
    unknown = sorted(data.keys() - kind.__dataclass_fields__.keys())  # type: ignore[attr-defined]
    if unknown:
        raise InputError(f"unknown field {unknown[0][:80]!r}")
    return msgspec.convert(data, kind)


def _parse_file(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}",
            remedy=f"check the path; presets are {', '.join(PRESETS)}",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise LimitError(
            f"{path} has more than {format_bytes(MAX_FILE_BYTES)}",
            remedy="give a cluster description: a few lines of TOML",
        )
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}", remedy="correct the file") from error
