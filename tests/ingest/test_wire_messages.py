"""Connections from their two ends, and messages from calls, to the byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from augury.core.errors import InputError
from augury.core.wire import MessageKind
from augury.ingest.wire.read_wire import has_wire, read_wire
from tests.ingest.wire_written import (
    EPOCH_NS,
    RECEIVED,
    STATE,
    US,
    Talk,
    Written,
    connection,
    event,
)

S = 10**9


def test_messages_and_their_receives(tmp_path: Path):
    talk = Talk(delay_ns=50 * US)
    talk.send(0, 100)
    talk.send(1, 60, receives=((20, 20), (100, 40)))
    talk.send(0, 7)
    wire = read_wire(talk.write(tmp_path))
    rows = wire.messages
    assert rows.src.tolist() == [0, 0, 1]
    assert rows.position.tolist() == [0, 100, 0]
    assert rows.size_bytes.tolist() == [100, 7, 60]
    assert rows.num_receives.tolist() == [1, 1, 2]
    assert (rows.arrived_ns - rows.send_ns).tolist() == [50 * US] * 3
    assert (rows.received_ns - rows.send_ns).tolist() == [50 * US, 50 * US, 51 * US]
    ends = wire.connections
    assert (ends.sent_a.tolist(), ends.received_b.tolist()) == ([107], [107])
    assert (ends.sent_b.tolist(), ends.received_a.tolist()) == ([60], [60])
    assert wire.strings[int(ends.address_a[0])] == "10.0.0.1:5000"
    assert wire.ranks_of(rows.dst).tolist() == [1, 1, 0]
    assert len(wire.ledger) == 0


def test_calls_that_send_the_rest_belong_to_one_message(tmp_path: Path):
    sender = Written(
        connections=[connection(("10.0.0.1", 1), ("10.0.0.2", 2), sent=130)],
        events=[
            event(1, start=EPOCH_NS, end=EPOCH_NS + 10, position=0, asked=100, done=60),
            event(
                2, start=EPOCH_NS + 100, end=EPOCH_NS + 110, position=60, asked=40, done=30,
                refused=EPOCH_NS + 20,
            ),
            event(3, start=EPOCH_NS + 150, end=EPOCH_NS + 160, position=90, asked=10, done=10),
            event(
                4, start=EPOCH_NS + 200, end=EPOCH_NS + 210, position=100, asked=30, done=30,
                refused=EPOCH_NS + 170,
            ),
        ],
    )  # fmt: skip
    sender.write(tmp_path)
    rows = read_wire(tmp_path).messages
    assert rows.size_bytes.tolist() == [100, 30]
    assert rows.send_ns.tolist() == [EPOCH_NS, EPOCH_NS + 200]
    assert rows.sent_ns.tolist() == [EPOCH_NS + 160, EPOCH_NS + 210]
    assert rows.refused_ns.tolist() == [90 + 40, 30]


def test_a_connection_with_an_unrecorded_peer_is_kept(tmp_path: Path):
    talk = Talk()
    talk.send(0, 100)
    talk.send(1, 60, receives=((20, 20), (100, 40)))
    talk.write(tmp_path)
    (tmp_path / f"{talk.files[1].stem}.bin").unlink()
    wire = read_wire(tmp_path)
    assert wire.connections.process_b.tolist() == [-1]
    assert wire.connections.received_b.tolist() == [-1]
    rows = wire.messages
    found = zip(rows.src.tolist(), rows.dst.tolist(), rows.size_bytes.tolist(), strict=True)
    assert sorted(found) == [
        (-1, 0, 20),
        (-1, 0, 40),
        (0, -1, 100),
    ]
    assert rows.received_ns[rows.src == 0].tolist() == [-1]
    assert rows.send_ns[rows.src == -1].tolist() == [-1, -1]
    assert wire.ledger["wire-peer-not-recorded"].count == 1


def test_calls_overwritten_at_one_end_are_unknown(tmp_path: Path):
    talk = Talk(num_slots=32)
    for _ in range(40):
        talk.send(0, 10)
    talk.files[1].num_slots = 16
    wire = read_wire(talk.write(tmp_path))
    assert wire.messages.position.tolist() == [10 * n for n in range(8, 40)]
    known = wire.messages.received_ns >= 0
    assert known.tolist() == [False] * 16 + [True] * 16
    assert wire.processes[0].calls_written_over == 8
    assert wire.processes[1].calls_written_over == 24
    assert wire.ledger["wire-written-over"].count == 32
    assert wire.ledger["wire-message-not-received"].count == 16
    assert wire.connections.sent_a.tolist() == wire.connections.received_b.tolist() == [400]


def test_a_reused_pair_of_ports(tmp_path: Path):
    here, there = ("10.0.0.1", 1), ("10.0.0.2", 2)
    times = (EPOCH_NS, EPOCH_NS + 70 * S)
    Written(
        rank=0,
        connections=[connection(here, there, opened=at, sent=10 + at % 7) for at in times],
    ).write(tmp_path)
    Written(
        rank=1,
        pid=101,
        host="two",
        connections=[
            connection(there, here, opened=at + 5 * US, received=10 + at % 7)
            for at in reversed(times)
        ],
    ).write(tmp_path)
    wire = read_wire(tmp_path)
    assert wire.connections.sent_a.tolist() == wire.connections.received_b.tolist()
    assert (wire.connections.process_b == 1).all()


@pytest.mark.parametrize(("host", "paired"), [("one", True), ("two", False)])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_loopback_connections_stay_on_one_host(
    tmp_path: Path, address: str, host: str, paired: bool
):
    here, there = (address, 1), (address, 2)
    Written(rank=0, connections=[connection(here, there)]).write(tmp_path)
    Written(rank=1, pid=101, host=host, connections=[connection(there, here)]).write(tmp_path)
    wire = read_wire(tmp_path)
    assert len(wire.connections) == (1 if paired else 2)
    assert ("wire-peer-not-recorded" in wire.ledger) != paired


def test_both_ends_in_one_process(tmp_path: Path):
    here, there = ("127.0.0.1", 1), ("127.0.0.1", 2)
    Written(
        connections=[connection(here, there, sent=10), connection(there, here, received=10)],
        events=[
            event(1, start=EPOCH_NS, end=EPOCH_NS + 5, asked=10, done=10),
            event(
                2, start=EPOCH_NS, end=EPOCH_NS + 9, asked=99, done=10, kind=RECEIVED, connection=1
            ),
        ],
    ).write(tmp_path)
    wire = read_wire(tmp_path)
    assert len(wire.connections) == 1
    assert (wire.messages.src.tolist(), wire.messages.dst.tolist()) == ([0], [0])
    assert wire.messages.received_ns.tolist() == [EPOCH_NS + 9]


def test_bytes_that_a_late_end_had_sent_before(tmp_path: Path):
    """More was received than the late end counted: its first recorded byte is not the connection's
    first."""
    here, there = ("10.0.0.1", 1), ("10.0.0.2", 2)
    Written(
        connections=[connection(here, there, sent=50, flags=2)],
        events=[event(1, start=EPOCH_NS, end=EPOCH_NS + 5, asked=50, done=50)],
    ).write(tmp_path)
    Written(
        rank=1,
        pid=101,
        connections=[connection(there, here, received=80)],
        events=[
            event(1, start=EPOCH_NS, end=EPOCH_NS + 3, asked=30, done=30, kind=RECEIVED),
            event(
                2, start=EPOCH_NS, end=EPOCH_NS + 9, position=30, asked=50, done=50, kind=RECEIVED
            ),
        ],
    ).write(tmp_path)
    wire = read_wire(tmp_path)
    assert wire.connections.is_late.tolist() == [1]
    assert wire.ledger["wire-late-connection"].count == 1
    assert wire.messages.received_ns.tolist() == [EPOCH_NS + 9]
    assert wire.messages.num_receives.tolist() == [1]


def test_readings_of_tcp_info(tmp_path: Path):
    states = [
        event(
            n, start=EPOCH_NS + n, end=EPOCH_NS + n, position=resent, asked=90, done=10, kind=STATE,
            extra=rtt,
        )
        for n, resent, rtt in ((1, 0, 0), (2, 4, 70), (3, 9, 60))
    ]  # fmt: skip
    Written(connections=[connection(("10.0.0.1", 1), ("10.0.0.2", 2))], events=states).write(
        tmp_path
    )
    ends = read_wire(tmp_path).connections
    assert (ends.retransmits_a.tolist(), ends.rtt_ns.tolist()) == ([9], [60_000])
    assert ends.retransmits_b.tolist() == [-1]


def test_gloo_headers_are_found_by_the_receivers_request(tmp_path: Path):
    talk = Talk()
    talk.send(0, 8)
    for _ in range(3):
        talk.send_framed(0, 0)
        talk.send_framed(1, 5000)
    wire = read_wire(talk.write(tmp_path))
    rows = wire.messages
    control = rows.kind == MessageKind.CONTROL
    assert rows.size_bytes[control].tolist() == [8, 48, 48, 48]
    assert (rows.payload_bytes[control] == 0).all()
    assert rows.payload_bytes[~control].tolist() == [5000] * 3


def test_other_messages_have_no_header(tmp_path: Path):
    talk = Talk()
    for _ in range(3):
        talk.send(0, 5048)
    rows = read_wire(talk.write(tmp_path)).messages
    assert rows.payload_bytes.tolist() == [5048] * 3
    assert (rows.kind == MessageKind.UNKNOWN).all()


def test_messages_of_the_recorders_rendezvous_are_own(tmp_path: Path):
    talk = Talk()
    talk.send(1, 32)
    talk.send(1, 40, receives=((4, 4), (36, 36)))
    talk.send(0, 19, receives=((4, 4), (15, 15)))
    rows = read_wire(talk.write(tmp_path)).messages
    assert (rows.kind == MessageKind.OWN).all()


def test_a_million_calls_are_read(tmp_path: Path):
    """Checks that reading is vectorized: otherwise this would time out."""
    number = 250_000
    here, there = ("10.0.0.1", 1), ("10.0.0.2", 2)
    for rank, kind in ((0, 0), (1, 1)):
        own, peer = (here, there) if rank == 0 else (there, here)
        dtype = np.dtype(
            "<u8,<u8,<u8,<u8,<u8,<u4,<u4,<u4,<u2,u1,u1,<u8",
        )
        rows = np.zeros(2 * number, dtype=dtype)
        at = np.arange(2 * number, dtype=np.uint64)
        rows["f0"] = at + 1
        rows["f1"] = EPOCH_NS + at * 1000
        rows["f2"] = rows["f1"] + 500 + 300 * kind
        rows["f3"] = at * 100
        rows["f5"] = rows["f6"] = 100
        rows["f9"] = kind
        moved = {"sent" if kind == 0 else "received": 200 * number}
        written = Written(
            rank=rank,
            pid=100 + rank,
            connections=[connection(own, peer, **moved)],
            num_slots=0,
            num_events=2 * number,
        )
        content = bytearray(written.content())
        content[32:40] = (2 * number).to_bytes(8, "little")
        (tmp_path / f"{written.stem}.bin").write_bytes(bytes(content) + rows.tobytes())
    wire = read_wire(tmp_path)
    assert len(wire.messages) == 2 * number
    assert (wire.messages.received_ns > wire.messages.send_ns).all()


def test_a_folder_without_wire_files(tmp_path: Path):
    assert not has_wire(tmp_path)
    with pytest.raises(InputError, match="contains no record of socket calls"):
        read_wire(tmp_path)
    (tmp_path / "rank-00000.wire-1-2.bin").write_bytes(b"no")
    with pytest.raises(InputError, match="it is too short"):
        read_wire(tmp_path)
