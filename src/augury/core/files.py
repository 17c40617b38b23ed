"""Atomic writing of files, and guarded reading of small files that may be hostile."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, TypeVar

from augury.core.errors import AuguryError, FileFormatError, InputError, UsageError

T = TypeVar("T")
_umask_lock = threading.Lock()
"""The umask can be read only by changing it, and all threads share it."""

DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors for a full disk, an exceeded quota, or an exceeded file size limit."""


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """Opens a temporary file, which gets its name when the block ends without an error."""
    ensure_writable(path, force=force)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        # mkstemp makes the file private; it gets the permissions of a plain open().
        with _umask_lock:
            umask = os.umask(0)
            os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise


def ensure_writable(path: Path, *, force: bool) -> None:
    """Raises an error if the file cannot be written: before the work rather than after it."""
    try:
        is_dir, exists, has_parent = path.is_dir(), path.exists(), path.parent.is_dir()
    except OSError as error:
        raise _cannot_write(path, error) from error
    if is_dir:
        raise UsageError(f"{path} is a directory", remedy="name a file")
    if exists and not force:
        raise UsageError(f"{path} exists", remedy="add --force to replace it")
    if not has_parent:
        raise UsageError(f"{path.parent} is not a directory", remedy="make it first")


def _cannot_write(path: Path, error: OSError) -> AuguryError:
    is_full = error.errno in DISK_IS_FULL
    return AuguryError(
        f"cannot write {path}: {error.strerror}",
        remedy="free some space there, or write to another place"
        if is_full
        else "check permissions there",
    )


def open_regular(path: Path) -> BufferedReader:
    """Opens a file for reading. Pipes and devices are refused: they may block or never end."""
    # Without O_NONBLOCK opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    what = "a pipe" if stat.S_ISFIFO(mode) else "a device"
    raise InputError(f"{path} is {what}, not a file", remedy="write its content to a file first")


def load_whole(
    path: Path, decode: Callable[[bytes], T], *, what: str, max_bytes: int, remedy: str
) -> T:
    """Decodes a small file of unknown origin. Errors contain its name."""
    try:
        with open_regular(path) as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check its name"
        ) from error
    if len(content) > max_bytes:
        raise FileFormatError(f"{path} is too large for a {what}", remedy=remedy)
    try:
        return decode(content)
    except InputError as error:
        raise type(error)(f"{path}: {error.cause}", remedy=error.remedy) from error


def make_folder(path: Path, *, force: bool) -> None:
    """Creates a folder for the files of a verb. Refuses one that is not empty, unless ``force``."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder", remedy="choose another folder with --out")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise UsageError(
            f"{path} is not empty",
            remedy="choose another folder with --out, or add --force to replace files",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AuguryError(
            f"cannot create {path}: {error.strerror}", remedy="choose another folder with --out"
        ) from error
