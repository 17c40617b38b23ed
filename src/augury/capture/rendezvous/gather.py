"""Brings the files of all ranks to where rank 0 writes its own, wherever hosts share no folder.

Every rank writes on its own host first. What rank 0 then lacks is sent to it; if that fails the
files are still where they were, and a message names the place.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from pathlib import Path

from augury.capture.rank_record import own_rank
from augury.capture.rendezvous.file_transfer import GATHERED, receive_files, send_files
from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import PATIENCE_S, Host, Meeting, meet

TRANSFER_S = 60.0

_WINDOW = "files/window"
_EXIT = "files/exit"


class _Collection:
    """Rank 0's. It ends last, so that whoever then reads the folder finds all that there is."""

    def __init__(self, host: Host, folder: Path) -> None:
        # Whoever sees this file sees the folder.
        self._token = f".seen-{secrets.token_hex(16)}"
        self._folder = folder
        self._host = host
        self._present: set[int] | None = None
        (folder / self._token).touch()
        host.offer(_WINDOW, self._take)
        host.offer(_EXIT, self._take)

    def _take(self, call: FramedSocket, rank: int) -> None:
        call.extend(TRANSFER_S)
        receive_files(call, self._folder, rank=rank, token=self._token)

    def wait(self) -> None:
        self._host.wait_for(_WINDOW, patience_s=PATIENCE_S)
        self._present = self._host.served(_WINDOW)

    def end(self) -> None:
        """Who did not come when the window closed is not waited for again."""
        self._host.wait_for(_EXIT, patience_s=PATIENCE_S, ranks=self._present)
        (self._folder / self._token).unlink(missing_ok=True)


_collection: _Collection | None = None
_has_complained = False


def gather(folder: Path, *, at_exit: bool = False) -> None:
    """To be called by every rank, after its files are written: when the last window has closed,
    and again at the end of the process, which each of them may reach at another time."""
    try:
        meeting = meet()
        if meeting is None:
            _complain_if_apart(folder)
        elif meeting.host is not None:
            _collect(meeting.host, folder, at_exit=at_exit)
        else:
            _deliver(meeting, folder, service=_EXIT if at_exit else _WINDOW)
    except Exception as error:
        _complain(folder, f"{type(error).__name__}: {error}")


def _collect(host: Host, folder: Path, *, at_exit: bool) -> None:
    global _collection  # noqa: PLW0603
    if _collection is None:
        _collection = _Collection(host, folder)
    if at_exit:
        _collection.end()
    else:
        _collection.wait()


def _deliver(meeting: Meeting, folder: Path, *, service: str) -> None:
    with meeting.call(service, timeout_s=TRANSFER_S) as call:
        kept_in = send_files(call, folder, rank=meeting.rank)
    if kept_in is not None:
        place = {"host": meeting.address[0], "folder": kept_in}
        partial = folder / f".{GATHERED}.{os.getpid()}"
        partial.write_text(json.dumps(place))
        partial.replace(folder / GATHERED)


def _complain_if_apart(folder: Path) -> None:
    """Without a meeting nobody knows whether rank 0 sees this folder; on one host it does."""
    world_size = os.environ.get("WORLD_SIZE", "1")
    if os.environ.get("LOCAL_WORLD_SIZE", world_size) != world_size:
        _complain(folder, "the ranks could not meet")


def _complain(folder: Path, why: str) -> None:
    global _has_complained  # noqa: PLW0603
    rank, _ = own_rank()
    if rank != 0 and not _has_complained:
        _has_complained = True
        print(
            f"augury: the files of rank {rank} stay on {socket.gethostname()} in {folder}: {why}",
            file=sys.stderr,
        )
