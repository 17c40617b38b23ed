"""Files: written so that nobody ever sees half of one and nothing is lost by accident; small ones
read as hostile input."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from augury.core.errors import AuguryError, FileFormatError, InputError, UsageError

T = TypeVar("T")


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
    return AuguryError(
        f"cannot write {path}: {error.strerror}", remedy="check space and permissions there"
    )


def load_whole(
    path: Path, decode: Callable[[bytes], T], *, what: str, max_bytes: int, remedy: str
) -> T:
    """Of a small file, which may come from anywhere; whatever is wrong with it is told with its
    name."""
    try:
        if path.stat().st_size > max_bytes:
            raise FileFormatError(f"{path} is too large for a {what}", remedy=remedy)
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check its name"
        ) from error
    try:
        return decode(content)
    except InputError as error:
        raise type(error)(f"{path}: {error.cause}", remedy=error.remedy) from error
