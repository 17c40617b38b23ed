"""Gathers the files of all ranks at rank 0 where hosts share no folder.

Every rank writes on its own host first and then sends to rank 0 the files that rank 0 lacks. If
that fails, the files stay where they are, and a message names the place.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from pathlib import Path

from augury.capture.process_identity import has_other_hosts, own_rank
from augury.capture.rendezvous.file_transfer import GATHERED, receive_files, send_files
from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import (
    PATIENCE_S,
    Rendezvous,
    RendezvousMember,
    RendezvousServer,
)

TRANSFER_S = 60.0

_WINDOW = "files/window"
_EXIT = "files/exit"


class FileGatherer:
    """One rank's part in gathering the files of its run."""

    def __init__(self, rendezvous: Rendezvous, folder: Path) -> None:
        self._rendezvous = rendezvous
        self._folder = folder
        self._collection: _Collection | None = None
        self._has_warned = False

    def gather(self, *, at_exit: bool = False) -> None:
        """Called by every rank after its files are written: when the detailed window has closed,
        and again at the end of the process, which each rank may reach at a different time."""
        try:
            member = self._rendezvous.join()
            if member is None:
                # On one host rank 0 sees this folder; otherwise that is unknown.
                if has_other_hosts():
                    self._warn("the ranks could not connect to rank 0")
            elif member.server is not None:
                self._collect(member.server, at_exit=at_exit)
            else:
                self._deliver(member, service=_EXIT if at_exit else _WINDOW)
        except Exception as error:
            self._warn(f"{type(error).__name__}: {error}")

    def _collect(self, server: RendezvousServer, *, at_exit: bool) -> None:
        if self._collection is None:
            self._collection = _Collection(server, self._folder)
        if at_exit:
            self._collection.end()
        else:
            self._collection.wait()

    def _deliver(self, member: RendezvousMember, *, service: str) -> None:
        with member.call(service, timeout_s=TRANSFER_S) as call:
            kept_in = send_files(call, self._folder, rank=member.rank)
        if kept_in is not None:
            place = {"host": member.address[0], "folder": kept_in}
            partial = self._folder / f".{GATHERED}.{os.getpid()}"
            partial.write_text(json.dumps(place))
            partial.replace(self._folder / GATHERED)

    def _warn(self, reason: str) -> None:
        rank, _ = own_rank()
        if rank != 0 and not self._has_warned:
            self._has_warned = True
            print(
                f"augury: the files of rank {rank} stay on {socket.gethostname()} in"
                f" {self._folder}: {reason}",
                file=sys.stderr,
            )


class _Collection:
    """Rank 0's side. Rank 0 ends last, so that a reader of its folder then finds all files."""

    def __init__(self, server: RendezvousServer, folder: Path) -> None:
        # A rank that sees this file shares the folder.
        self._token = f".seen-{secrets.token_hex(16)}"
        self._folder = folder
        self._server = server
        self._present: set[int] | None = None
        (folder / self._token).touch()
        server.offer(_WINDOW, self._take)
        server.offer(_EXIT, self._take)

    def _take(self, call: FramedSocket, rank: int) -> None:
        call.extend(TRANSFER_S)
        receive_files(call, self._folder, rank=rank, token=self._token)

    def wait(self) -> None:
        self._server.wait_for(_WINDOW, patience_s=PATIENCE_S)
        self._present = self._server.served(_WINDOW)

    def end(self) -> None:
        """Ranks that timed out when the window closed are skipped."""
        self._server.wait_for(_EXIT, patience_s=PATIENCE_S, ranks=self._present)
        (self._folder / self._token).unlink(missing_ok=True)
