"""Machines from TOML: presets that come with the package, and users' own. A description has a few
lines; a user's is hostile input like any other."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from augury.core.errors import InputError, LimitError
from augury.core.files import open_regular
from augury.core.units import format_bytes
from augury.oracle.cluster.cluster import Machine, NetworkLevel
from augury.oracle.cluster.device import Device

T = TypeVar("T")

PRESETS = ("abci", "v100", "a100", "h100", "mi300x", "cpu")
"""Each a file of that name in ``presets/``."""

MAX_FILE_BYTES = 16 << 10
"""The TOML parser takes quadratic time for hostile ones."""


class _ClusterFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str = "cluster"
    device: dict[str, Any] | str
    level: list[dict[str, Any]]
    price_per_device_hour: float | None = None
    input_bandwidth_bytes_per_s: float | None = None


def find_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """A preset by its name, or a TOML file."""
    name = os.fspath(name_or_path).lower()
    return _preset(name) if name in PRESETS else load_machine(name_or_path)


def load_machine(path: str | os.PathLike[str]) -> Machine:
    path = Path(path)
    data = _parsed(path)
    try:
        file = msgspec.convert(data, _ClusterFile)
        return Machine(
            name=file.name,
            device=_device(file.device),
            levels=tuple(_typed(level, NetworkLevel) for level in file.level),
            price_per_device_hour=file.price_per_device_hour,
            input_bandwidth_bytes_per_s=file.input_bandwidth_bytes_per_s,
        )
    except (msgspec.ValidationError, InputError) as error:
        raise InputError(
            f"{path} does not describe a cluster: {error}",
            remedy="give [device] and one [[level]] after the other; docs/oracle.md has an example,"
            f" and presets are {', '.join(PRESETS)}",
        ) from error


def _device(stated: dict[str, Any] | str) -> Device:
    """In full, or that of a preset."""
    if isinstance(stated, dict):
        return _typed(stated, Device)
    name = stated.lower()
    if name not in PRESETS:
        raise InputError(f"it does not know the device {stated[:80]!r}")
    return _preset(name).device


@cache
def _preset(name: str) -> Machine:
    return load_machine(Path(__file__).with_name("presets") / f"{name}.toml")


def _typed(data: dict[str, Any], kind: type[T]) -> T:
    unknown = sorted(data.keys() - kind.__dataclass_fields__.keys())  # type: ignore[attr-defined]
    if unknown:
        raise InputError(f"it does not know {unknown[0][:80]!r}")
    return msgspec.convert(data, kind)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}",
            remedy=f"check the path, or name a preset: {', '.join(PRESETS)}",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise LimitError(
            f"{path} has more than {format_bytes(MAX_FILE_BYTES)}",
            remedy="give a cluster description: a few lines of TOML",
        )
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}", remedy="mend it there") from error
