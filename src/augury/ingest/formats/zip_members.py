"""Unpacks the members of zip archives into a temporary folder, with limits."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.files import open_regular
from augury.core.units import format_bytes
from augury.ingest.formats.gzip_reader import MAX_BYTES, MAX_RATIO
from augury.ingest.formats.shown_path import ShownPath, write_part
from augury.ingest.run_files import ReadBudget

MAX_MEMBERS = 1 << 14
_CHUNK = 2 << 20


def zip_members(path: Path, folder: Path, budget: ReadBudget) -> Iterator[ShownPath]:
    """Yields each file of the archive as a file of ``folder``, whatever the archive calls it."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if len(members) > MAX_MEMBERS:
                raise LimitError(
                    f"{path} has {len(members):,} members; the limit is {MAX_MEMBERS:,}",
                    remedy="unpack it, and import the traces",
                )
            for info in sorted(members, key=lambda info: info.filename):
                # Folders become part of the name, which may be where the rank is.
                name = info.filename.strip("/").replace("/", "_")
                yield write_part(folder, f"{path}/{name}", _content(path, archive, info, budget))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise FileFormatError(
            f"{path} is damaged or encrypted and cannot be unpacked ({str(error)[:200]})",
            remedy="unpack it yourself, and import the traces",
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error


def _content(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: ReadBudget
) -> Iterator[bytes]:
    cap = min(MAX_BYTES, max(1 << 20, info.compress_size * MAX_RATIO))
    total = 0
    if info.header_offset < 0:
        raise zipfile.BadZipFile("a member begins before the file")
    with archive.open(info) as member:
        while chunk := member.read(_CHUNK):
            total += len(chunk)
            budget.take(len(chunk))
            if total > cap:
                raise LimitError(
                    f"{info.filename} in {path} unpacks to more than {format_bytes(cap)}",
                    remedy="record fewer steps, or split it",
                )
            yield chunk
