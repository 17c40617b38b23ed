"""The layout of what the wire recorder writes, as docs/wire.md has it."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np
from numpy.typing import NDArray

SENT, RECEIVED, STATE_OF_TCP = 0, 1, 2
SEEN_FROM_ITS_BEGINNING, OF_THE_PARENT = 1, 4
MAX_CONNECTIONS = 1 << 16
MAX_SLOTS = 1 << 26
MAX_TIME_NS = 3 * 10**18
MAX_POSITION = 1 << 62
_MAGIC, _VERSION = b"AUGWIRE1", 1

HEADER = np.dtype(
    [
        ("magic", "S8"),
        *((name, "<u4") for name in ("version", "header", "connection", "event")),
        *((name, "<u8") for name in ("max_connections", "max_events")),
        *((name, "<u8") for name in ("num_connections", "num_events", "connections_lost")),
        *((name, "<u8") for name in ("is_kept", "calls_not_kept", "bytes_not_kept")),
        *(("pid", "<i8"), ("rank", "<i8"), ("realtime_ns", "<u8"), ("monotonic_ns", "<u8")),
        ("host", "S64"),
    ]
)
CONNECTION = np.dtype(
    [
        *((name, "<u8") for name in ("opened_ns", "closed_ns")),
        *((name, "<u8", 2) for name in ("bytes", "calls")),
        ("inode", "<u8"),
        ("refused_ns", "<u8", 2),
        ("info_ns", "<u8"),
        *((name, "<u4") for name in ("family", "flags", "num_fds")),
        *((name, "<u2") for name in ("own_port", "peer_port")),
        *((name, "V16") for name in ("own", "peer")),
    ]
)
EVENT = np.dtype(
    [
        *((name, "<u8") for name in ("number", "start_ns", "end_ns", "position", "refused_ns")),
        *((name, "<u4") for name in ("asked", "done", "thread")),
        *(("connection", "<u2"), ("kind", "<u1"), ("reserved", "<u1"), ("extra", "<u8")),
    ]
)


def checked_header(data: NDArray[np.uint8]) -> Any:
    """Raises a ValueError where it is no such file, or claims what cannot be."""
    if len(data) < HEADER.itemsize:
        raise ValueError("it is too short")
    header = np.frombuffer(data[: HEADER.itemsize].tobytes(), dtype=HEADER)[0]
    if header["magic"] != _MAGIC:
        raise ValueError("it is no record of socket calls")
    if header["version"] != _VERSION:
        raise ValueError(f"it is of version {header['version']}, which is not known")
    sizes = (int(header["connection"]), int(header["event"]))
    if sizes != (CONNECTION.itemsize, EVENT.itemsize):
        raise ValueError("its rows have other sizes than they should")
    if not HEADER.itemsize <= int(header["header"]) <= 1 << 16:
        raise ValueError("its header has another size than it should")
    if int(header["max_connections"]) > MAX_CONNECTIONS or int(header["max_events"]) > MAX_SLOTS:
        raise ValueError("it claims to have more rows than there can be")
    if int(header["num_connections"]) > int(header["max_connections"]):
        raise ValueError("it claims to have more connections than places for them")
    return header


def whole_rows(data: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    usable = len(data) // dtype.itemsize * dtype.itemsize
    return np.frombuffer(data[:usable].tobytes(), dtype=dtype)


def address_text(family: int, address: np.void, port: int) -> str:
    raw = address.tobytes()
    if family == 4:
        return f"{ipaddress.IPv4Address(raw[:4])}:{port}"
    return f"[{ipaddress.IPv6Address(raw)}]:{port}"
