"""Files: written so that nobody ever sees half of one and nothing is lost by accident; small ones
read as hostile input."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, TypeVar

from augury.core.errors import AuguryError, FileFormatError, InputError, UsageError

T = TypeVar("T")

DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no space for this user, or more than one file may have here."""


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """The file appears under its name, whole, when the block ends without an error."""
    ensure_writable(path, force=force)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        # mkstemp makes it private; give it what a plain open() would have.
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
    """Fails before the work rather than after it."""
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
        remedy="make space there, or name another place" if is_full else "check permissions there",
    )


def open_regular(path: Path) -> BufferedReader:
    """A file opened for reading. Pipes and devices are refused, for they may block or never end."""
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
    """Of a small file, which may come from anywhere; whatever is wrong with it is told with its
    name."""
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
