"""A registry of readers that fail, to show that the campaign notices each failure."""

from __future__ import annotations

import os
import time
from pathlib import Path

from augury.core.errors import InputError
from tests.mutated_files.good_files import GoodFiles
from tests.mutated_files.readers import Reader

_kept: list[bytes] = []


def _good() -> list[GoodFiles]:
    return [GoodFiles({"file.txt": b"0123456789"}, ("file.txt",))]


def _is_good(folder: Path) -> bool:
    return (folder / "file.txt").read_bytes() == b"0123456789"


def _refuse(folder: Path) -> None:
    if not _is_good(folder):
        raise InputError("not the good file")


def _raise(folder: Path) -> None:
    if not _is_good(folder):
        raise KeyError("not caught")


def _hang(folder: Path) -> None:
    while not _is_good(folder):
        time.sleep(0.01)


def _crash(folder: Path) -> None:
    if not _is_good(folder):
        os._exit(3)


def _take_memory(folder: Path) -> None:
    if not _is_good(folder):
        bytearray(2 << 30)


READERS = tuple(
    Reader(read.__name__.strip("_"), (), _good, read, weight=weight)
    for read, weight in ((_refuse, 20), (_raise, 2), (_hang, 1), (_crash, 2), (_take_memory, 2))
)
