"""Writing files so that nobody ever sees half of one, and nothing is lost by accident."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from augury.core.errors import AuguryError, UsageError


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
