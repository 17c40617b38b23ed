"""Processes with the wire recorder preloaded, and a reader of their files."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from augury.capture.wire.preload import LIBRARY, wire_library

SOURCE = Path(__file__).parents[2] / "native" / "wire.c"

HEADER = np.dtype(
    [
        *(("magic", "S8"), ("version", "<u4"), ("header_bytes", "<u4")),
        *(("connection_bytes", "<u4"), ("event_bytes", "<u4")),
        *(("max_connections", "<u8"), ("max_events", "<u8")),
        *(("num_connections", "<u8"), ("num_events", "<u8"), ("connections_lost", "<u8")),
        *(("is_kept", "<u8"), ("calls_not_kept", "<u8"), ("bytes_not_kept", "<u8")),
        *(("pid", "<i8"), ("rank", "<i8"), ("realtime_ns", "<u8"), ("monotonic_ns", "<u8")),
        ("host", "S64"),
    ]
)
CONNECTION = np.dtype(
    [
        *(("opened_ns", "<u8"), ("closed_ns", "<u8"), ("sent", "<u8"), ("received", "<u8")),
        *(("sends", "<u8"), ("receives", "<u8"), ("inode", "<u8"), ("refused_ns", "<u8", 2)),
        *(("info_ns", "<u8"), ("family", "<u4"), ("flags", "<u4"), ("num_fds", "<u4")),
        *(("local_port", "<u2"), ("peer_port", "<u2"), ("local", "u1", 16), ("peer", "u1", 16)),
    ]
)
EVENT = np.dtype(
    [
        *(("number", "<u8"), ("start_ns", "<u8"), ("end_ns", "<u8"), ("position", "<u8")),
        *(("refused_ns", "<u8"), ("asked", "<u4"), ("done", "<u4"), ("thread", "<u4")),
        *(("connection", "<u2"), ("kind", "u1"), ("reserved", "u1"), ("extra", "<u8")),
    ]
)
SENT, RECEIVED = 0, 1


@dataclass(frozen=True)
class Written:
    """One file, as docs/wire.md describes it."""

    path: Path
    header: np.void
    connections: np.ndarray
    events: np.ndarray
    """Complete events, in the order of their numbers."""

    def of(self, kind: int) -> np.ndarray:
        return self.events[self.events["kind"] == kind]

    def near(self, port: int) -> np.void:
        """The end that has this port."""
        (row,) = self.connections[self.connections["local_port"] == port]
        return row

    def far(self, port: int) -> np.void:
        (row,) = self.connections[self.connections["peer_port"] == port]
        return row


def read_wire(path: Path) -> Written:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    header = np.frombuffer(data, HEADER, 1)[0]
    assert header["magic"] == b"AUGWIRE1"
    sizes = [int(header[name]) for name in ("header_bytes", "connection_bytes", "event_bytes")]
    assert sizes == [4096, CONNECTION.itemsize, EVENT.itemsize] == [4096, 128, 64]
    rows, slots = int(header["max_connections"]), int(header["max_events"])
    assert len(data) == 4096 + 128 * rows + 64 * slots
    events = np.frombuffer(data, EVENT, slots, 4096 + 128 * rows)
    return Written(
        path,
        header,
        np.frombuffer(data, CONNECTION, int(header["num_connections"]), 4096),
        np.sort(events[events["number"] > 0], order="number"),
    )


def read_all(folder: Path) -> list[Written]:
    """Returns the files in the order of their start."""
    written = [read_wire(path) for path in folder.glob("*.wire-*")]
    return sorted(written, key=lambda one: int(one.header["realtime_ns"]))


def build_library(folder: Path) -> Path:
    library = folder / LIBRARY
    compile_c(SOURCE.read_text(), library, "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
    return library


def compile_c(source: str, library: Path, *flags: str) -> None:
    gcc = ["gcc", "-O2", "-std=gnu11", "-fPIC", "-shared", *flags, "-x", "c", "-"]
    subprocess.run(
        [*gcc, "-o", str(library), "-ldl", "-pthread"], input=source, text=True, check=True
    )


def wired(folder: Path, **environment: str) -> dict[str, str]:
    changed = {"LD_PRELOAD": str(wire_library()), "AUGURY_WIRE": str(folder), **environment}
    return {name: value for name, value in os.environ.items() if name != "RANK"} | changed


def run_wired(
    script: str, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PAIR + script, *arguments],
        env=wired(folder, **environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


PAIR = """
import ctypes, json, os, select, signal, socket, subprocess, sys, threading
LISTENER = socket.create_server(("127.0.0.1", 0))

def pair():
    \"\"\"Both ends of a connection; the port of the former names it.\"\"\"
    near = socket.create_connection(LISTENER.getsockname())
    return near, LISTENER.accept()[0]

def port(near):
    return near.getsockname()[1]

def take(far, size, how=None):
    while size:
        part = how(size) if how else len(far.recv(size))
        assert part > 0
        size -= part
"""
