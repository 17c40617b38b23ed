"""Transfer of one rank's files to rank 0: both ends of the protocol.

Only files that rank 0 lacks are sent, and rank 0 accepts only names of a run's files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from augury.capture.rendezvous.framed_socket import FramedSocket

GATHERED = "gathered.json"
"""File that names the place of the copies at rank 0."""

MAX_FILES = 256
MAX_FILE_BYTES = 4 << 30
TOKEN = re.compile(r"\.seen-[0-9a-f]{32}")

_PART_BYTES = 1 << 20
_NAME = re.compile(
    r"rank-([0-9]{5,9})"
    r"(?:\.json|(?:\.[0-9]{1,9})?\.trace\.json\.gz|\.wire-[0-9]{1,10}-[0-9a-f]{1,16}\.wire\.gz)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredFile:
    """Name, size and digest of a file that a rank offers."""

    name: str
    size_bytes: int
    digest: str


def is_file_of_rank(name: str, rank: int) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and int(match[1]) == rank


def send_files(call: FramedSocket, folder: Path, *, rank: int) -> str | None:
    """Returns the folder in which rank 0 keeps the files; None if both ranks see this folder."""
    token = call.receive_message()["token"]
    if not (isinstance(token, str) and TOKEN.fullmatch(token)):
        raise ValueError("unexpected answer from rank 0")
    if (folder / token).exists():
        call.send_message(is_shared=True)
        return None
    # Traces first: a reader that finds the record then finds the traces it names.
    paths = sorted(
        (path for path in folder.iterdir() if is_file_of_rank(path.name, rank)),
        key=lambda path: (not path.name.endswith(".gz"), path.name),
    )
    items = [_item(path) for path in paths]
    call.send_message(is_shared=False, files=[asdict(item) for item in items])
    for index in _answer(call, "wanted"):
        _send(call, paths[index], items[index])
    return str(_answer(call, "folder"))


def receive_files(call: FramedSocket, folder: Path, *, rank: int, token: str) -> None:
    call.send_message(token=token)
    offer = call.receive_message()
    if offer["is_shared"]:
        return
    items = [_checked(item, rank) for item in offer["files"][:MAX_FILES]]
    wanted = [i for i, item in enumerate(items) if not _has(folder, item)]
    missing_bytes = sum(items[i].size_bytes for i in wanted)
    if missing_bytes > shutil.disk_usage(folder).free:
        call.send_message(error=f"no space for {missing_bytes} bytes at rank 0")
        return
    call.send_message(wanted=wanted)
    for index in wanted:
        _receive(call, folder, items[index])
    call.send_message(folder=str(folder))


def _answer(call: FramedSocket, field: str) -> Any:
    answer = call.receive_message()
    if "error" in answer:
        raise OSError(str(answer["error"]))
    return answer[field]


def _checked(offered: dict[str, Any], rank: int) -> TransferredFile:
    item = TransferredFile(
        name=str(offered["name"]),
        size_bytes=int(offered["size_bytes"]),
        digest=str(offered["digest"]),
    )
    if not is_file_of_rank(item.name, rank) or not 0 <= item.size_bytes <= MAX_FILE_BYTES:
        raise ValueError("not a file of a run")
    return item


def _item(path: Path) -> TransferredFile:
    return TransferredFile(name=path.name, size_bytes=path.stat().st_size, digest=_digest(path))


def _has(folder: Path, item: TransferredFile) -> bool:
    path = folder / item.name
    with suppress(OSError):
        return path.stat().st_size == item.size_bytes and _digest(path) == item.digest
    return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _send(call: FramedSocket, path: Path, item: TransferredFile) -> None:
    """Sends exactly the announced number of bytes, even if the file has changed: otherwise the
    receiver would misread everything after it. The digest reveals the change."""
    left = item.size_bytes
    with path.open("rb") as file:
        while left:
            part = file.read(min(_PART_BYTES, left)) or bytes(min(_PART_BYTES, left))
            call.send(part)
            left -= len(part)


def _receive(call: FramedSocket, folder: Path, item: TransferredFile) -> None:
    partial = folder / f".{item.name}.{os.getpid()}.partial"
    digest = hashlib.blake2b()
    left = item.size_bytes
    try:
        with partial.open("wb") as file:
            while left:
                part = call.receive(min(_PART_BYTES, left))
                digest.update(part)
                file.write(part)
                left -= len(part)
        if digest.hexdigest() != item.digest:
            raise ValueError(f"{item.name} changed during the transfer")
        partial.replace(folder / item.name)
    finally:
        partial.unlink(missing_ok=True)
