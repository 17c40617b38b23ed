"""Paths that are shown by another name: members of archives, parts of files, relative paths."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path, PosixPath
from typing import Any

from augury.core.errors import AuguryError


class ShownPath(PosixPath):
    """A path to a file whose name and text are those of its origin. Readers open it like any
    other."""

    # Python 3.11 makes parents and children of the path without calling __init__.
    _origin: str | None = None
    _target: str | None = None

    def __new__(cls, target: str, _origin: str) -> ShownPath:
        return super().__new__(cls, target)

    def __init__(self, target: str, origin: str) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(target)
        self._target, self._origin = target, origin

    @classmethod
    def of(cls, path: Path) -> ShownPath:
        """Returns the absolute path, shown as it was given."""
        return cls(os.path.abspath(os.fspath(path)), str(path))

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    def __str__(self) -> str:
        return super().__str__() if self._origin is None else self._origin

    def __fspath__(self) -> str:
        return super().__str__() if self._target is None else self._target

    def __reduce__(self) -> Any:
        return ShownPath, (os.fspath(self), str(self))

    def with_segments(self, *segments: str | os.PathLike[str]) -> Path:
        return Path(*segments)


def write_part(folder: Path, origin: str, content: Iterable[bytes]) -> ShownPath:
    """Writes the content to a new file of ``folder``, which is shown as ``origin``."""
    try:
        descriptor, target = tempfile.mkstemp(suffix=".part", dir=folder)
        with open(descriptor, "wb") as file:
            for chunk in content:
                file.write(chunk)
    except OSError as error:
        raise AuguryError(
            f"cannot unpack {origin} into {folder}: {error.strerror}",
            remedy="free some space there, or write to another place",
        ) from error
    return ShownPath(os.path.abspath(target), origin)
