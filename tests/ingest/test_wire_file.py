"""Records of socket calls are read as far as they are valid."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from augury.core.ledger import Ledger
from augury.ingest.wire.wire_file import read_wire_files
from tests.ingest.wire_written import EPOCH_NS, RECEIVED, STATE, Written, connection, event

HERE, THERE = ("10.0.0.1", 5000), ("10.0.0.2", 6000)


def _calls(count: int, *, first: int = 1) -> list[bytes]:
    """Calls of 10 bytes each, consecutive."""
    return [
        event(
            number,
            start=EPOCH_NS + number * 100,
            end=EPOCH_NS + number * 100 + 50,
            position=10 * (number - 1),
            asked=10,
            done=10,
        )
        for number in range(first, first + count)
    ]


def _read(folder: Path):
    ledger = Ledger()
    return read_wire_files(folder, ledger), ledger


@pytest.mark.parametrize("packed", [False, True])
def test_a_written_file_is_read(tmp_path: Path, packed: bool):
    state = event(
        4, start=EPOCH_NS, end=EPOCH_NS, position=3, refused=2, asked=70, done=10, kind=STATE,
        extra=40,
    )  # fmt: skip
    written = Written(
        rank=3,
        connections=[
            connection(HERE, THERE, sent=30, received=5, closed=EPOCH_NS + 9, flags=2),
            connection(("::1", 1), ("::1", 2)),
        ],
        events=[*_calls(3), state],
        lost=2,
        not_kept=(7, 700),
    )
    written.write(tmp_path, packed=packed)
    (file,), ledger = _read(tmp_path)
    assert (file.rank, file.pid, file.host) == (3, 100, "one")
    assert file.own == ["10.0.0.1:5000", "[::1]:1"]
    assert file.peer == ["10.0.0.2:6000", "[::1]:2"]
    assert file.ends.sent_bytes.tolist() == [30, 0]
    assert file.ends.received_bytes.tolist() == [5, 0]
    assert file.ends.closed_ns.tolist() == [EPOCH_NS + 9, -1]
    assert file.ends.is_late.tolist() == [1, 0]
    assert file.calls.position.tolist() == [0, 10, 20]
    assert (file.calls.end_ns - file.calls.start_ns).tolist() == [50] * 3
    assert file.states.retransmits.tolist() == [3]
    assert file.states.min_rtt_ns.tolist() == [40_000]
    assert (file.connections_lost, file.calls_not_kept, file.bytes_not_kept) == (2, 7, 700)
    assert file.calls_written_over == 0
    assert len(ledger) == 0


def test_overwritten_calls_are_counted_by_number(tmp_path: Path):
    written = Written(connections=[connection(HERE, THERE)], events=_calls(100), num_slots=16)
    written.write(tmp_path)
    (file,), _ = _read(tmp_path)
    assert file.calls_written_over == 84
    assert file.calls.position.tolist() == [10 * n for n in range(84, 100)]


def test_packed_and_unpacked_files_are_equal(tmp_path: Path):
    written = Written(connections=[connection(HERE, THERE)], events=_calls(20)[4:], num_events=20)
    for packed in (False, True):
        (tmp_path / str(packed)).mkdir()
        written.write(tmp_path / str(packed), packed=packed)
    ((one,), _), ((other,), _) = _read(tmp_path / "False"), _read(tmp_path / "True")
    assert one.calls == other.calls
    assert one.calls_written_over == other.calls_written_over == 4


def test_the_unpacked_file_is_preferred(tmp_path: Path):
    written = Written(connections=[connection(HERE, THERE)], events=_calls(3))
    written.write(tmp_path, packed=True)
    written.events = _calls(5)
    written.write(tmp_path)
    (file,), ledger = _read(tmp_path)
    assert len(file.calls) == 5
    (tmp_path / f"{written.stem}.bin").write_bytes(b"AUGWIRE1")
    (file,), ledger = _read(tmp_path)
    assert len(file.calls) == 3
    assert len(ledger) == 0


def _bad_events() -> dict[str, bytes]:
    good = {"start": EPOCH_NS + 5, "end": EPOCH_NS + 9, "position": 900, "asked": 9, "done": 9}
    return {
        "ends-before-it-starts": event(4, **good | {"start": EPOCH_NS + 10}),
        "in-another-age": event(4, **good | {"end": (1 << 64) - 1}),
        "did-nothing": event(4, **good | {"done": 0}),
        "did-more-than-asked": event(4, **good | {"done": 10}),
        "no-such-connection": event(4, **good, connection=1),
        "no-such-kind": event(4, **good, kind=9),
        "beyond-all-positions": event(4, **good | {"position": (1 << 64) - 5}),
        "refused-in-the-future": event(4, **good, refused=EPOCH_NS + 7),
        "bytes-of-another-call": event(4, **good | {"position": 15}),
    }


@pytest.mark.parametrize("what", _bad_events())
@pytest.mark.parametrize("packed", [False, True])
def test_an_impossible_call_is_left_out(tmp_path: Path, what: str, packed: bool):
    written = Written(
        connections=[connection(HERE, THERE)], events=[*_calls(3), _bad_events()[what]]
    )
    written.write(tmp_path, packed=packed)
    (file,), ledger = _read(tmp_path)
    assert file.calls.position.tolist() == [0, 10, 20]
    assert ledger["wire-damaged-calls"].count == 1


def test_an_incomplete_call_is_left_out(tmp_path: Path):
    half = event(0, start=EPOCH_NS, end=EPOCH_NS, position=30, asked=10, done=10)
    written = Written(connections=[connection(HERE, THERE)], events=[*_calls(3), half])
    written.write(tmp_path)
    (file,), ledger = _read(tmp_path)
    assert len(file.calls) == 3
    assert ledger["wire-half-written"].count == 1


def test_a_number_in_a_wrong_slot_is_left_out(tmp_path: Path):
    written = Written(connections=[connection(HERE, THERE)], events=_calls(3))
    path = written.write(tmp_path)
    content = bytearray(path.read_bytes())
    at = len(content) - 64 * 64
    content[at : at + 8] = (2).to_bytes(8, "little")
    path.write_bytes(content)
    (file,), ledger = _read(tmp_path)
    assert file.calls.position.tolist() == [10, 20]
    assert ledger["wire-damaged-calls"].count == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_read_to_its_end(tmp_path: Path, packed: bool):
    written = Written(connections=[connection(HERE, THERE)], events=_calls(60))
    content = written.content(packed=packed)
    path = written.write(tmp_path, packed=packed)
    if packed:
        whole = gzip.compress(content, compresslevel=0)
        path.write_bytes(whole[: len(whole) - 64 * 20])
    else:
        path.write_bytes(content[: len(content) - 64 * 20 - 7])
    (file,), ledger = _read(tmp_path)
    assert 30 <= len(file.calls) < 60
    assert "wire-truncated" in ledger


@pytest.mark.parametrize(
    "odd",
    [
        {"magic": b"AUGWIRE2"},
        {"version": 2},
        {"sizes": (4096, 128, 32)},
        {"sizes": (1 << 31, 128, 64)},
        {"sizes": (0, 128, 64)},
        {"num_connections": 1 << 40},
        {"num_connections": 9},
    ],
)
def test_files_of_another_format_are_noted(tmp_path: Path, odd: dict):
    Written(connections=[connection(HERE, THERE)], events=_calls(3), **odd).write(tmp_path)
    files, ledger = _read(tmp_path)
    assert files == []
    assert ledger["wire-unreadable"].count == 1


def test_a_bomb_is_refused(tmp_path: Path):
    name = Written().stem + ".wire.gz"
    (tmp_path / name).write_bytes(gzip.compress(bytes(64 << 20)))
    files, ledger = _read(tmp_path)
    assert files == []
    assert ledger["wire-unreadable"].count == 1


def test_other_files_are_left_alone(tmp_path: Path):
    for name in ("rank-00000.wire-1-2.txt", ".rank-00000.wire-1-2", "x.wire-1-2.bin"):
        (tmp_path / name).write_bytes(b"no")
    (tmp_path / "rank-00000.wire-1-2.bin").mkdir()
    files, ledger = _read(tmp_path)
    assert (files, len(ledger)) == ([], 0)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damaged_files_never_raise(tmp_path: Path, data: st.DataObject):
    received = event(
        13, start=EPOCH_NS, end=EPOCH_NS + 1, position=0, asked=9, done=9, kind=RECEIVED
    )
    written = Written(
        connections=[connection(HERE, THERE)] * 2, events=[*_calls(12), received], num_slots=16
    )
    content = bytearray(written.content())
    used = [*range(184), *range(4096, 4096 + 256), *range(len(content) - 16 * 64, len(content))]
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.sampled_from(used))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"{written.stem}.bin"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    files, _ = _read(tmp_path)
    for file in files:
        assert (file.calls.done > 0).all()
        assert (np.diff(file.calls.connection) >= 0).all()
