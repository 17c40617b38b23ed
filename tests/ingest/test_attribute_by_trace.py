"""Attribution of known messages to the collectives of a known Trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringTable
from augury.core.trace.trace import Calibration, Events, RankFacts, Steps, Streams, Trace
from augury.core.wire import Algorithm, MessageKind, attributed_share
from augury.ingest.wire.attribution.gloo_messages import all_gather_lengths, all_reduce_lengths
from augury.ingest.wire.read_wire import read_wire
from tests.ingest.wire_written import EPOCH_NS, Talk

MS = 1_000_000


class Job:
    """Two ranks; their operations are recorded as by a profiler and sent over the wire."""

    def __init__(self) -> None:
        self.talk = Talk()
        self.events: list[dict[str, int]] = []
        self.next = 0

    def note(self, kind: OpKind, start: int, size: int, *, rank: int, sequence: int) -> None:
        self.events.append(
            {
                "kind": kind, "rank": rank, "start_ns": start, "dur_ns": self.talk.now - start,
                "size_bytes": size, "sequence": sequence,
            }
        )  # fmt: skip

    def both(self, kind: OpKind, size: int, lengths: tuple[list[int], list[int]]) -> int:
        start = self.talk.now
        self.send(lengths)
        for rank in (0, 1):
            self.note(kind, start, size, rank=rank, sequence=self.next)
        self.next += 1
        self.talk.now += 10 * MS
        return self.next - 1

    def send(self, lengths: tuple[list[int], list[int]]) -> None:
        for turn in range(max(map(len, lengths))):
            for rank in (0, 1):
                if turn < len(lengths[rank]):
                    self.talk.send_framed(rank, lengths[rank][turn])

    def all_reduce(self, size: int, *, told: int | None = None, element_bytes: int = 4) -> int:
        own = [all_reduce_lengths(size, 2, rank, element_bytes).tolist() for rank in (0, 1)]
        return self.both(OpKind.ALL_REDUCE, size if told is None else told, (own[0], own[1]))

    def trace(self, *, calibrated: bool = False, until: int | None = None) -> Trace:
        rows = sorted(self.events, key=lambda event: (event["rank"], event["start_ns"]))
        names = [name for name, _ in Events.schema()]
        columns: dict[str, Any] = {name: np.full(len(rows), NONE) for name in names}
        columns["phase"] = np.zeros(len(rows))
        columns["group"] = np.zeros(len(rows))
        columns["step"] = np.ones(len(rows))
        for name in ("kind", "rank", "start_ns", "dur_ns", "size_bytes", "sequence"):
            columns[name] = np.array([row[name] for row in rows])
        columns["arrival_ns"] = columns["start_ns"]
        end = until or self.talk.now
        return Trace(
            events=Events(**columns),
            streams=Streams.empty(),
            steps=Steps(
                **{name: np.full(2, NONE) for name, _ in Steps.schema() if name != "state"}
                | {
                    "rank": np.arange(2),
                    "step": np.ones(2),
                    "start_ns": np.full(2, EPOCH_NS),
                    "end_ns": np.full(2, end),
                },
                state=np.ones(2),
            ),
            strings=StringTable.of([]),
            ranks=[RankFacts(rank=0, host="one"), RankFacts(rank=1, host="two")],
            world_size=2,
            groups=[[0, 1]],
            calibration=[
                Calibration(
                    collective="all_reduce", group=0, size_bytes=4, concurrent=1,
                    beside_compute=False, durations_ns=[5],
                )
            ]
            if calibrated
            else [],
        )  # fmt: skip

    def wire(self, folder: Path, trace: Trace | None = None):
        return read_wire(self.talk.write(folder), trace or self.trace())


@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
def test_all_reduces_of_any_element_type_are_attributed(tmp_path: Path, element_bytes: int):
    job = Job()
    size = 1_000_008 + 16 * (element_bytes == 1)
    numbers = [job.all_reduce(size, element_bytes=element_bytes) for _ in range(3)]
    wire = job.wire(tmp_path)
    rows = wire.messages
    for number in numbers:
        own = rows.sequence == number
        assert int(rows.payload_bytes[own].sum()) == 2 * size
        assert set(rows.kind[own].tolist()) == {MessageKind.COLLECTIVE}
        for rank in (0, 1):
            assert rows.turn[own & (rows.src == rank)].tolist() == [0, 1, 2, 3]
    assert (wire.collectives.algorithm == Algorithm.RING).all()
    assert attributed_share(wire) == 1


def test_concurrent_all_reduces_are_separated(tmp_path: Path):
    job = Job()
    start = job.talk.now
    sizes = (400_000, 999_996)
    parts = [[all_reduce_lengths(size, 2, rank).tolist() for rank in (0, 1)] for size in sizes]
    for turn in range(4):
        for part in parts:
            for rank in (0, 1):
                job.talk.send_framed(rank, part[rank][turn])
    for sequence, size in enumerate(sizes):
        for rank in (0, 1):
            job.note(OpKind.ALL_REDUCE, start, size, rank=rank, sequence=sequence)
    wire = job.wire(tmp_path)
    assert wire.collectives.payload_bytes.tolist() == [2 * size for size in sizes]
    assert wire.collectives.expected_bytes.tolist() == [2 * size for size in sizes]


def test_gathers_sends_and_collectives_of_unknown_lengths(tmp_path: Path):
    job = Job()
    halves = all_gather_lengths(50_001, 2).tolist()
    gathered = job.both(OpKind.ALL_GATHER, 100_002, (halves, halves))
    told = job.both(OpKind.BROADCAST, 77_777, ([77_777], []))
    start = job.talk.now
    job.talk.send_framed(1, 4_321)
    job.note(OpKind.SEND, start, 4_321, rank=1, sequence=9)
    job.note(OpKind.RECV, start, 4_321, rank=0, sequence=9)
    wire = job.wire(tmp_path)
    rows = wire.messages
    sent = {number: int(rows.payload_bytes[rows.sequence == number].sum()) for number in (0, 1, 9)}
    assert sent == {gathered: 100_002, told: 77_777, 9: 4_321}
    assert rows.kind[rows.sequence == 9].tolist() == [MessageKind.POINT_TO_POINT]
    assert [Algorithm(a) for a in wire.collectives.algorithm.tolist()] == [
        Algorithm.RING,
        Algorithm.UNKNOWN,
        Algorithm.DIRECT,
    ]
    assert wire.collectives.payload_bytes.tolist() == wire.collectives.expected_bytes.tolist()


def test_payload_without_a_collective_is_unexplained(tmp_path: Path):
    job = Job()
    job.all_reduce(1_000_000)
    job.talk.send_framed(0, 500_000)
    wire = job.wire(tmp_path)
    assert attributed_share(wire) == pytest.approx(0.8)
    assert wire.ledger["wire-unexplained"].count == 1


def test_payload_outside_of_recorded_steps_is_counted_separately(tmp_path: Path):
    job = Job()
    job.all_reduce(1_000_000)
    until = job.talk.now
    job.talk.now += 100 * MS
    job.talk.send_framed(0, 500_000)
    wire = job.wire(tmp_path, job.trace(until=until))
    rows = wire.messages
    outside = (rows.payload_bytes == 500_000).nonzero()[0]
    assert rows.kind[outside].tolist() == [MessageKind.COLLECTIVE]
    assert rows.sequence[outside].tolist() == [NONE]
    assert attributed_share(wire) == 1
    assert wire.ledger["wire-outside-windows"].count == 1


@pytest.mark.parametrize("calibrated", [True, False])
def test_calibration_connections_are_recognized(tmp_path: Path, calibrated: bool):
    job = Job()
    job.talk.now += 500 * MS
    job.send(([500_000] * 3, [500_000] * 3))
    trace = job.trace(calibrated=calibrated, until=EPOCH_NS + 100 * MS)
    trace = trace.evolve(
        events=Events(
            **{name: np.zeros(2) for name, _ in Events.schema() if name not in ("rank", "step")},
            rank=np.arange(2),
            step=np.ones(2),
        )
    )
    kinds = set(job.wire(tmp_path, trace).messages.kind.tolist())
    assert kinds == {MessageKind.OWN if calibrated else MessageKind.COLLECTIVE}


def test_a_collective_with_missing_payload_is_noted(tmp_path: Path):
    job = Job()
    job.all_reduce(1_000_000, told=1_200_000)
    wire = job.wire(tmp_path)
    assert wire.collectives.algorithm.tolist() == [Algorithm.UNKNOWN]
    assert wire.collectives.payload_bytes.tolist() == [2_000_000]
    assert wire.ledger["wire-unequal-collective"].count == 1


def test_impossible_sizes_and_ranks_are_ignored(tmp_path: Path):
    job = Job()
    job.all_reduce(1_000_000, told=1 << 59)
    assert job.wire(tmp_path).collectives.algorithm.tolist() == [Algorithm.UNKNOWN]
    for file in tmp_path.glob("*"):
        file.unlink()
    job.talk.files[1].rank = (1 << 20) - 1
    wire = read_wire(job.talk.write(tmp_path))
    assert len(wire.collectives) == 0
    assert attributed_share(wire) == 0
