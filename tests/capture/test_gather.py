"""Gathering of files from hosts that share no folder: real processes with mounts of their own."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from augury.capture.rendezvous.file_transfer import is_file_of_rank, receive_files, send_files
from augury.capture.rendezvous.framed_socket import FramedSocket
from tests.capture.jobs import can_unshare, start_ranks, write_training

TOKEN = ".seen-" + "0" * 32


def talk(near: Path, far: Path, *, token: str = TOKEN, rank: int = 1) -> tuple[object, object]:
    """Returns the results of both ends of one transfer: a value or the error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        ends = (listener.accept()[0], caller)
    outcome: list[object] = [None, None]

    def take(index: int, action) -> None:
        try:
            with FramedSocket(ends[index], timeout_s=10) as call:
                outcome[index] = action(call)
        except Exception as error:
            outcome[index] = error

    host = threading.Thread(
        target=take, args=(0, lambda call: receive_files(call, far, rank=rank, token=token))
    )
    host.start()
    take(1, lambda call: send_files(call, near, rank=1))
    host.join()
    return outcome[0], outcome[1]


@pytest.fixture
def near(tmp_path: Path) -> Path:
    folder = tmp_path / "near"
    folder.mkdir()
    (folder / "rank-00001.json").write_text("{}")
    (folder / "rank-00001.0.trace.json.gz").write_bytes(bytes(range(256)) * 20_000)
    (folder / "rank-00002.json").write_text("another rank's")
    (folder / "notes.txt").write_text("not part of the run")
    return folder


@pytest.fixture
def far(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    folder.mkdir()
    return folder


def test_a_ranks_own_files_arrive_whole(near: Path, far: Path):
    assert talk(near, far) == (None, str(far))
    assert sorted(path.name for path in far.iterdir()) == [
        "rank-00001.0.trace.json.gz",
        "rank-00001.json",
    ]
    for path in far.iterdir():
        assert path.read_bytes() == (near / path.name).read_bytes()


def test_only_missing_files_are_sent(near: Path, far: Path):
    talk(near, far)
    kept = far / "rank-00001.0.trace.json.gz"
    before = kept.stat().st_ino
    (near / "rank-00001.json").write_text('{"more": 1}')
    assert talk(near, far) == (None, str(far))
    assert kept.stat().st_ino == before
    assert (far / "rank-00001.json").read_text() == '{"more": 1}'


def test_a_shared_folder_is_left_alone(near: Path):
    (near / TOKEN).touch()
    assert talk(near, near) == (None, None)


def test_files_of_other_ranks_are_refused(near: Path, far: Path):
    taken, _ = talk(near, far, rank=3)
    assert isinstance(taken, ValueError)
    assert list(far.iterdir()) == []


def test_a_token_that_leads_elsewhere_is_refused(near: Path, far: Path):
    _, sent = talk(near, far, token="../../etc/passwd")
    assert isinstance(sent, ValueError)
    assert list(far.iterdir()) == []


def test_a_full_disk_is_reported(near: Path, far: Path, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage(far)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    _, sent = talk(near, far)
    assert "no space" in str(sent)
    assert list(far.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("rank-00001.json", True),
        ("rank-00001.trace.json.gz", True),
        ("rank-00001.12.trace.json.gz", True),
        ("rank-00002.json", False),
        ("rank-1.json", False),
        ("../rank-00001.json", False),
        ("rank-00001.json/x", False),
        ("rank-00001.json\n", False),
        ("rank-00001.sh", False),
        ("rank-00001.wire-123-18e86b2bd18551f9.wire.gz", True),
        ("rank-00001.wire-123-18e86b2bd18551f9.bin", False),
        ("rank-00002.wire-123-18.wire.gz", False),
        ("process.wire-123-18.wire.gz", False),
        ("rank-٠٠٠٠١.json", False),
        ("rank-00001.0.0.trace.json.gz", False),
    ],
)
def test_names_of_files_that_are_accepted(name: str, is_taken: bool):
    assert is_file_of_rank(name, 1) is is_taken


JOB = """
import os, sys
from pathlib import Path
import torch.distributed as dist
from augury.capture.rendezvous.gather import FileGatherer
from augury.capture.rendezvous.rendezvous import Rendezvous
from augury.capture.torch.recorder import find_job_store

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(sys.argv[1])
own = folder / f"rank-{rank:05d}.json"
assert [path.name for path in folder.iterdir() if rank] == []
own.write_text("window")
dist.barrier()
gatherer = FileGatherer(Rendezvous(find_job_store), folder)
gatherer.gather()
dist.destroy_process_group()
own.write_text("exit")
if rank == 2:
    os._exit(1)  # as if killed
gatherer.gather(at_exit=True)
for path in sorted(folder.iterdir()):
    print(path.name, path.read_text())
"""


@pytest.mark.more
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(not can_unshare(), reason="mount namespaces need privileges")
def test_hosts_that_share_no_folder(tmp_path: Path):
    """Three hosts, each with its own disk at the same path; the last one is killed early."""
    script, out = tmp_path / "job.py", tmp_path / "run"
    script.write_text(JOB)
    out.mkdir()
    own_disk = 'mount -t tmpfs none "$1" && exec "$2" "$3" "$1"'
    done = start_ranks(
        ["unshare", "-m", "sh", "-c", own_disk, "sh", str(out), sys.executable, str(script)],
        num_ranks=3,
    )
    assert [rank.returncode for rank in done] == [0, 0, 1], [rank.stderr for rank in done]
    assert done[0].stdout.splitlines() == [
        "rank-00000.json exit",
        "rank-00001.json exit",
        "rank-00002.json window",
    ]
    marker, own = done[1].stdout.splitlines()
    assert own == "rank-00001.json exit"
    assert json.loads(marker.removeprefix("gathered.json ")) == {
        "host": "127.0.0.1",
        "folder": str(out),
    }
    assert list(out.iterdir()) == []  # no file was shared by other means


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(not can_unshare(), reason="mount namespaces need privileges")
def test_a_job_recorded_on_hosts_that_share_no_folder(tmp_path: Path):
    """One ``augury run`` on each host, as on a real cluster."""
    script, disk = write_training(tmp_path), tmp_path / "disk"
    disk.mkdir()
    words = [sys.executable, "-m", "augury", "run", "--out", str(disk / "run"), "--steps", "2:4"]
    words += ["--", sys.executable, str(script), "9"]
    own_disk = 'mount -t tmpfs none "$0" && "$@" && ls -A "$0/run"'
    done = start_ranks(["unshare", "-m", "sh", "-c", own_disk, str(disk), *words], num_ranks=2)
    for rank in done:
        assert rank.returncode == 0, rank.stderr
    windows = ["0.trace.json.gz", "1.trace.json.gz", "json"]
    there = [line for line in done[0].stdout.splitlines() if not line.startswith("loss")]
    assert there == [f"rank-0000{rank}.{end}" for rank in (0, 1) for end in windows]
    assert "2 ranks recorded" in done[0].stderr
    assert f"next: augury diagnose {disk / 'run'}" in done[0].stderr
    assert f"copied to {disk / 'run'} on 127.0.0.1" in done[1].stderr
    assert "next:" not in done[1].stderr
