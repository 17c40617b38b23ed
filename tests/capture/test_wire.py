"""The wire recorder in real processes: every byte is counted, and no program is disturbed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.capture.jobs import can_unshare
from tests.capture.wired import (
    PAIR,
    RECEIVED,
    SENT,
    compile_c,
    read_all,
    read_wire,
    run_wired,
    wired,
)

pytestmark = pytest.mark.usefixtures("wire_recorder")

FROM_ITS_BEGINNING, LATE, OF_PARENT = 1, 2, 4


def ran(script: str, folder: Path, *arguments: str, **environment: str) -> str:
    done = run_wired(script, folder, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


WAYS = """
libc = ctypes.CDLL(None, use_errno=True)

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
                ("vector", ctypes.POINTER(Vector)), ("count", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("unused", ctypes.c_int), ("done", ctypes.c_uint)]

def messages(*buffers):
    made = (Message * len(buffers))()
    for message, buffer in zip(made, buffers):
        vector = Vector(ctypes.addressof(buffer), len(buffer))
        message.vector, message.count = ctypes.pointer(vector), 1
    return made

def send_messages(fd):
    made = messages(ctypes.create_string_buffer(700), ctypes.create_string_buffer(300))
    assert libc.sendmmsg(fd, made, 2, 0) == 2

def receive_messages(fd, size):
    made = messages(ctypes.create_string_buffer(size))
    return made[0].done if libc.recvmmsg(fd, made, 1, 0, None) == 1 else -1

def into(function, *after):
    def receive(size):
        room = ctypes.create_string_buffer(size)
        return function(far.fileno(), room, size, *(ctypes.c_size_t(size), *after))
    return receive

DATA = bytes(1000)
with open(sys.argv[1], "wb") as file:
    file.write(DATA)
sends = {
    "send": lambda: near.send(DATA),
    "sendto": lambda: libc.sendto(near.fileno(), DATA, 1000, 0, None, 0),
    "sendmsg": lambda: near.sendmsg([DATA[:400], DATA[400:]]),
    "sendmmsg": lambda: send_messages(near.fileno()),
    "write": lambda: os.write(near.fileno(), DATA),
    "writev": lambda: os.writev(near.fileno(), [DATA[:1], DATA[1:]]),
    "sendfile": lambda: near.sendfile(open(sys.argv[1], "rb")),
}
receives = {
    "recv": None,
    "recvfrom": lambda size: len(far.recvfrom(size)[0]),
    "recvmsg": lambda size: len(far.recvmsg(size)[0]),
    "recvmmsg": lambda size: receive_messages(far.fileno(), size),
    "read": lambda size: len(os.read(far.fileno(), size)),
    "readv": lambda size: os.readv(far.fileno(), [bytearray(size)]),
    "read_chk": into(libc.__read_chk),
    "recv_chk": into(libc.__recv_chk, 0),
    "recvfrom_chk": into(libc.__recvfrom_chk, 0, None, None),
}
ports = {}
for name, send in sends.items():
    near, far = pair()
    send()
    take(far, 1000)
    ports[name] = port(near)
for name, how in receives.items():
    near, far = pair()
    near.sendall(DATA)
    assert len(far.recv(1000, socket.MSG_PEEK)) > 0
    take(far, 1000, how)
    ports[name] = port(near)
print(json.dumps(ports))
"""


def test_every_way_to_send_and_receive_is_counted(tmp_path: Path):
    """Bytes that are only peeked at do not count."""
    folder = tmp_path / "wire"
    folder.mkdir()
    ports = json.loads(ran(WAYS, folder, str(tmp_path / "data")))
    assert len(ports) == 16
    (written,) = read_all(folder)
    for name, port in ports.items():
        near, far = written.near(port), written.far(port)
        assert (near["sent"], far["received"]) == (1000, 1000), name
        assert (near["received"], far["sent"]) == (0, 0), name
        assert near["flags"] == far["flags"] == FROM_ITS_BEGINNING
        assert (near["family"], near["local"][:4].tolist()) == (4, [127, 0, 0, 1])
    assert written.header["rank"] == -1
    assert (written.of(SENT)["end_ns"] >= written.of(SENT)["start_ns"]).all()
    assert written.of(SENT)["done"].sum() == written.of(RECEIVED)["done"].sum() == 16_000
    assert written.path.name.startswith("process.wire-")


REFUSED = """
near, far = pair()
near.setblocking(False)
left = memoryview(bytes(6_000_000))
poll = select.epoll()
poll.register(near, select.EPOLLOUT)
refused = 0
while left:
    try:
        left = left[near.send(left):]
    except BlockingIOError:
        if not refused:
            reader = threading.Thread(target=take, args=(far, 6_000_000))
            reader.start()
        refused += 1
        poll.poll()
reader.join()
print(port(near), refused)
"""


def test_partial_and_refused_calls(tmp_path: Path):
    """Without a reader the kernel accepts fewer bytes than requested, and then none."""
    port, refused = map(int, ran(REFUSED, tmp_path).split())
    assert refused > 0
    (written,) = read_all(tmp_path)
    near, far = written.near(port), written.far(port)
    assert near["sent"] == far["received"] == 6_000_000
    for kind in (SENT, RECEIVED):
        events = np.sort(written.of(kind), order="position")
        ends = np.cumsum(events["done"].astype(np.int64))
        assert events["position"].tolist() == [0, *ends[:-1].tolist()]
    sent = written.of(SENT)
    assert sent["asked"][0] == 6_000_000 > sent["done"][0]
    assert 0 < np.count_nonzero(sent["refused_ns"]) <= refused
    waited = sent[sent["refused_ns"] > 0]
    assert (waited["refused_ns"] <= waited["start_ns"]).all()
    assert near["sends"] == len(sent)  # refused calls do not count


DUPLICATES = """
near, far = pair()
other = near.dup()
near_port = port(near)
near.close()
other.send(bytes(100))
spare, _ = pair()
os.dup2(other.fileno(), spare.fileno())
other.close()
spare.send(bytes(50))
take(far, 150)
spare.close()
# A descriptor number that is used again after a close that the recorder did not see.
lost, far = pair()
lost.send(bytes(10))
lost_port, number = port(lost), lost.detach()
SYS_close = {"x86_64": 3, "aarch64": 57}[os.uname().machine]
assert ctypes.CDLL(None).syscall(ctypes.c_long(SYS_close), ctypes.c_long(number)) == 0
reader, writer = os.pipe()
assert number in (reader, writer)
os.write(writer, bytes(5000))
os.read(reader, 5000)
print(near_port, lost_port)
"""


def test_descriptors_that_are_duplicated_or_used_again(tmp_path: Path):
    port, lost = map(int, ran(DUPLICATES, tmp_path).split())
    (written,) = read_all(tmp_path)
    near = written.near(port)  # one row, for all descriptors
    assert (near["sent"], written.far(port)["received"]) == (150, 150)
    assert near["closed_ns"] > near["opened_ns"]
    lost_end = written.near(lost)
    assert (lost_end["sent"], lost_end["received"]) == (10, 0)
    assert lost_end["closed_ns"] > 0


FORKS = """
near, far = pair()
near.send(bytes(100))
idle = os.fork()
if not idle:
    near.close()
    os._exit(0)
busy = os.fork()
if not busy:
    near.send(bytes(30))
    os._exit(0)
for child in (idle, busy):
    assert os.waitpid(child, 0)[1] == 0
near.send(bytes(7))
take(far, 137)
print(port(near), os.getpid(), busy)
"""


def test_forked_processes_are_distinguished(tmp_path: Path):
    port, parent, busy = map(int, ran(FORKS, tmp_path, RANK="3").split())
    first, second = read_all(tmp_path)
    assert (first.header["pid"], second.header["pid"]) == (parent, busy)
    assert first.header["rank"] == second.header["rank"] == 3
    assert first.path.name.startswith(f"rank-00003.wire-{parent}-")
    assert first.near(port)["sent"] == 107
    assert first.far(port)["received"] == 137
    assert (second.near(port)["sent"], second.near(port)["flags"]) == (30, LATE | OF_PARENT)
    assert second.events["thread"][0] == busy


SPAWNS = """
near, far = pair()
near.send(bytes(100))
subprocess.run(["true"], check=True)
for _ in range(3):
    closing = [(os.POSIX_SPAWN_CLOSE, near.fileno()), (os.POSIX_SPAWN_DUP2, 1, far.fileno())]
    pid = os.posix_spawnp("true", ["true"], os.environ, file_actions=closing)
    assert os.waitpid(pid, 0)[1] == 0
connects = "import socket, sys; socket.create_connection(('127.0.0.1', {})).send(b'x')"
connects = connects.format(LISTENER.getsockname()[1])
own = subprocess.Popen([sys.executable, "-c", connects])
accepted = LISTENER.accept()[0]
take(accepted, 1)
assert own.wait() == 0
near.send(bytes(11))
take(far, 111)
print(port(near), own.pid, accepted.getpeername()[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_spawned_processes_close_nothing_and_a_killed_one_leaves_its_record(tmp_path: Path):
    done = run_wired(SPAWNS, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    port, child, child_port = map(int, done.stdout.split())
    first, second = read_all(tmp_path)
    near, far = first.near(port), first.far(port)
    assert (near["sent"], far["received"]) == (111, 111)
    assert (near["closed_ns"], far["closed_ns"], near["num_fds"]) == (0, 0, 1)
    assert first.of(SENT)["done"].tolist() == [100, 11]
    assert second.header["pid"] == child
    assert second.near(child_port)["sent"] == first.far(child_port)["received"] == 1


EXECS = """
if len(sys.argv) == 1:
    near, far = pair()
    for end in (near, far):
        end.set_inheritable(True)
    near.send(bytes(100))
    words = [sys.executable, *sys.orig_argv[1:], str(near.fileno()), str(far.fileno())]
    os.execv(sys.executable, words)
near, far = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:])
near.send(bytes(20))
take(far, 120)
print(port(near))
"""


def test_a_program_that_becomes_another(tmp_path: Path):
    port = int(ran(EXECS, tmp_path))
    first, second = read_all(tmp_path)
    assert first.header["pid"] == second.header["pid"]
    assert (first.near(port)["sent"], second.near(port)["sent"]) == (100, 20)
    assert (second.far(port)["received"], second.far(port)["flags"]) == (120, LATE)


def test_the_newest_calls_are_kept_and_the_others_counted(tmp_path: Path):
    script = "near, far = pair()\nfor _ in range(1000): near.send(bytes(10)); take(far, 10)\n"
    port = int(ran(script + "print(port(near))", tmp_path, AUGURY_WIRE_EVENTS="300"))
    (written,) = read_all(tmp_path)
    num_events = int(written.header["num_events"])
    assert num_events >= 2000
    assert written.events["number"].tolist() == list(range(num_events - 299, num_events + 1))
    assert written.near(port)["sent"] == written.far(port)["received"] == 10_000
    assert written.of(SENT)["position"].max() == 9990


KEEPS = """
keep = ctypes.CDLL(None).augury_wire_keep
keep(0)  # before the first event
near, far = pair()
near.send(bytes(100))
keep(1)
near.send(bytes(20))
keep(0)
near.send(bytes(3))
take(far, 123)
"""


def test_calls_that_are_not_kept_are_counted(tmp_path: Path):
    ran(KEEPS, tmp_path)
    (written,) = read_all(tmp_path)
    (event,) = written.of(SENT)
    assert (event["position"], event["done"]) == (100, 20)
    assert written.header["bytes_not_kept"] == 100 + 3 + 123
    assert written.header["calls_not_kept"] >= 3


CROWD = """
def talk():
    for _ in range(20):
        near, far = pair_alone()
        near.sendall(bytes(100))
        take(far, 100)
        near.close(), far.close()

turn = threading.Lock()
def pair_alone():
    with turn:
        return pair()

threads = [threading.Thread(target=talk) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_many_threads_at_once(tmp_path: Path):
    ran(CROWD, tmp_path)
    (written,) = read_all(tmp_path)
    assert written.header["num_connections"] == 320
    assert sorted(set(written.connections["sent"].tolist())) == [0, 100]
    assert written.connections["sent"].sum() == written.connections["received"].sum() == 16_000
    assert (written.connections["closed_ns"] > 0).all()
    assert len(written.of(SENT)) == 160


def test_more_connections_than_the_table_holds(tmp_path: Path):
    script = "for _ in range(2060):\n    near, far = pair()\n    near.close(), far.close()\n"
    ran(script, tmp_path, AUGURY_WIRE_EVENTS="256")
    (written,) = read_all(tmp_path)
    assert written.header["num_connections"] == 4096
    assert written.header["connections_lost"] == 2 * 2060 - 4096


VERSIONS = """
both = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
for address in ("127.0.0.1", "::1"):
    near = socket.create_connection((address, both.getsockname()[1]))
    far, _ = both.accept()
    near.send(bytes(5))
    take(far, 5)
    print(port(near))
"""


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6")
def test_both_versions_of_ip_and_one_within_the_other(tmp_path: Path):
    done = run_wired(VERSIONS, tmp_path)
    ports = [int(port) for port in done.stdout.split()]
    (written,) = read_all(tmp_path)
    for port, version in zip(ports, (4, 6), strict=False):
        near, far = written.near(port), written.far(port)
        assert near["family"] == far["family"] == version
        assert near["local"].tolist() == far["peer"].tolist()
        assert near["sent"] == far["received"] == 5
    assert len(ports) == 2 or "Cannot assign requested address" in done.stderr


OTHER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/socket.h>
static int calls;
ssize_t send(int fd, const void *data, size_t size, int flags) {
  ssize_t (*next)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
  calls++;
  return next(fd, data, size, flags);
}
__attribute__((destructor)) static void tell(void) { printf("%d calls\\n", calls); }
"""


def test_other_preloaded_libraries_still_work(tmp_path: Path, wire_recorder: Path):
    other = tmp_path / "other.so"
    compile_c(OTHER, other)
    for order in ((wire_recorder, other), (other, wire_recorder)):
        folder = tmp_path / order[0].stem
        folder.mkdir()
        script = "near, far = pair()\nnear.send(b'abc')\ntake(far, 3)\n"
        said = ran(script, folder, LD_PRELOAD=":".join(map(str, order)))
        assert "1 calls" in said
        (written,) = read_all(folder)
        assert written.of(SENT)["done"].tolist() == [3]


TALK = "near, far = pair()\nnear.send(bytes(9))\ntake(far, 9)\nprint('fine')\n"


@pytest.mark.parametrize("folder", ["/nowhere/to/be/found", "relative", "", "/" + "x" * 600])
def test_a_missing_folder_does_no_harm(tmp_path: Path, folder: str):
    done = subprocess.run(
        [sys.executable, "-c", PAIR + TALK],
        env=wired(tmp_path, AUGURY_WIRE=folder),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rank", "events", "name", "num_slots"),
    [
        ("two", "many", "process.wire-", 1 << 20),
        ("-1", "-5", "process.wire-", 1 << 20),
        ("99999999999999999999", "1", "process.wire-", 256),
        ("123456", "1000 ", "rank-123456.wire-", 1 << 20),
    ],
)
def test_odd_values_of_the_environment(
    tmp_path: Path, rank: str, events: str, name: str, num_slots: int
):
    assert ran(TALK, tmp_path, RANK=rank, AUGURY_WIRE_EVENTS=events) == "fine\n"
    (written,) = read_all(tmp_path)
    assert written.path.name.startswith(name)
    assert written.header["max_events"] == num_slots


def test_a_limit_of_file_sizes_is_kept(tmp_path: Path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
    script = f"signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n{limit}{TALK}"
    assert ran(script, tmp_path) == "fine\n"
    (written,) = read_all(tmp_path)
    assert written.path.stat().st_size <= 1 << 20
    assert written.header["max_events"] == 1 << 12


@pytest.mark.skipif(not can_unshare(), reason="mount namespaces need privileges")
@pytest.mark.parametrize(("size", "is_recorded"), [("64k", False), ("2m", True)])
def test_a_small_disk_does_no_harm(tmp_path: Path, size: str, is_recorded: bool):
    small_disk = f'mount -t tmpfs -o size={size} none "$0" && "$@" && ls -A "$0"'
    command = ["unshare", "-m", "sh", "-c", small_disk, str(tmp_path)]
    done = subprocess.run(
        [*command, sys.executable, "-c", PAIR + TALK],
        env=wired(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, *left = done.stdout.splitlines()
    assert (said, len(left)) == ("fine", int(is_recorded))


def test_a_process_without_connections_leaves_nothing(tmp_path: Path):
    ran("near, far = socket.socketpair()\nnear.send(b'x')\nfar.recv(1)\n", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_state_of_tcp_is_sampled(tmp_path: Path):
    ran("near, far = pair()\nfor _ in range(50): near.send(bytes(10)); take(far, 10)\n", tmp_path)
    (written,) = read_all(tmp_path)
    states = written.of(2)
    assert 1 <= len(states) < 50
    assert (states["position"] == 0).all()  # nothing is lost on loopback
    assert (states["asked"] > 0).all()  # a round trip takes time


def test_a_file_is_readable_while_it_is_written(tmp_path: Path):
    script = "near, far = pair()\nnear.send(bytes(9))\nprint('now', flush=True)\ninput()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", PAIR + script],
        env=wired(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        (path,) = tmp_path.glob("*.bin")
        assert read_wire(path).of(SENT)["done"].tolist() == [9]
    finally:
        process.communicate("\n", timeout=60)
