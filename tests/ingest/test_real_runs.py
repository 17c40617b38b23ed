"""Recorded runs of two real processes, also with wrong clocks."""

from __future__ import annotations

import gzip
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.clocks.rank_clocks import Source
from augury.ingest.recorded import read_run
from tests.recordings import Recording

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

MS = 1_000_000


@pytest.fixture(scope="module")
def ddp(recorded_ddp: Recording) -> Path:
    return recorded_ddp.run


def communication(trace: Trace, step: int, rank: int) -> list[tuple[str, int, int]]:
    """Kind, size and sequence number of each collective, in order."""
    e = trace.events
    on_wire = trace.streams.kind[e.stream] == StreamKind.COMMUNICATION
    rows = np.flatnonzero(on_wire & (e.step == step) & (e.rank == rank)).tolist()
    found = [(OpKind(e.kind[i]).label, int(e.size_bytes[i]), int(e.sequence[i])) for i in rows]
    return sorted(found, key=lambda entry: entry[2])


def test_two_models_with_accumulation_and_python_calls(ddp: Path):
    trace = read_run(ddp)
    assert list(problems(trace)) == []
    assert [a.name for a in trace.ledger] == []
    for step in (5, 6, 9, 10, 12, 13):
        own, other = (communication(trace, step, rank) for rank in (0, 1))
        reduced = [size for kind, size, _ in own if kind == "all_reduce"]
        assert reduced == [size for kind, size, _ in other if kind == "all_reduce"]
        # The small model's bucket, three of the large one's, its map of unused parameters, and
        # one that the program asked for itself.
        assert sorted(reduced) == sorted([528, 13_288, 481_600, 480_000, 32, 400]), step
        assert [n for _, _, n in own] == [n for _, _, n in other]
        assert min(n for _, _, n in own) >= 0
        assert [(kind, size) for kind, size, _ in own if kind == "send"] == [("send", 40)]
        assert [(kind, size) for kind, size, _ in other if kind == "recv"] == [("recv", 40)]
    timed = trace.steps.step[(trace.steps.rank == 0) & (trace.steps.state == StepState.TIMED)]
    assert timed.tolist() == [6, 10]


def test_backward_nodes_of_light_windows_have_layers(ddp: Path):
    trace = read_run(ddp)
    e = trace.events
    rows = np.flatnonzero((e.rank == 0) & (e.step == 5) & (e.phase == Phase.BACKWARD)).tolist()
    nodes = [i for i in rows if trace.name(i) == "AddmmBackward0"]
    layers = [trace.strings[int(e.layer[i])].rpartition(".")[2] for i in nodes]
    assert layers == ["1", "0", "last", "second", "first"] * 2


def test_arrivals_come_before_starts_and_after_gradients(ddp: Path):
    trace = read_run(ddp)
    e = trace.events
    on_wire = (e.kind == OpKind.ALL_REDUCE) & (e.step > 0)
    assert (e.arrival_ns[on_wire] <= e.start_ns[on_wire]).all()
    steps = trace.steps
    of_steps = zip(steps.rank.tolist(), steps.step.tolist(), steps.start_ns.tolist(), strict=True)
    begins = {(rank, step): start_ns for rank, step, start_ns in of_steps}
    where = zip(e.rank[on_wire].tolist(), e.step[on_wire].tolist(), strict=True)
    assert (e.arrival_ns[on_wire] >= [begins[place] for place in where]).all()


def test_sharded_models_and_pipelines(recorded_sharded: Recording):
    trace = read_run(recorded_sharded.run)
    assert list(problems(trace)) == []
    assert "unmatched-communication" not in trace.ledger
    own, other = (communication(trace, 4, rank) for rank in (0, 1))
    assert [n for _, _, n in own] == [n for _, _, n in other]
    kinds = [kind for kind, _, _ in own]
    assert kinds.count("all_gather") == 3
    assert kinds.count("reduce_scatter") + kinds.count("all_reduce") == 2
    assert kinds.count("send") == kinds.count("recv") == 2
    assert all(size > 0 for _, size, _ in own)


def skew(folder: Path, rank: int, offset_ns: int, drift_ppm: float) -> None:
    """Shifts all time stamps of a rank, as if its clock were wrong."""
    path = folder / f"rank-{rank:05d}.json"
    told = json.loads(path.read_text())
    origin = told["step_end_ns"][0]

    def moved(ns: int) -> int:
        return ns + offset_ns + round((ns - origin) * drift_ppm / 1e6)

    told["step_end_ns"] = [moved(ns) for ns in told["step_end_ns"]]
    told["resumed"] = [[step, moved(ns)] for step, ns in told["resumed"]]
    for call in told["calls"]:
        # Times of whatever the record holds by now, sizes and numbers left alone.
        call[:] = [moved(v) if isinstance(v, int) and v > 10**17 else v for v in call]
    for handshake in told["handshake"]:
        handshake["exchanges"] = [
            [moved(a), b, c, moved(d)] for a, b, c, d in handshake["exchanges"]
        ]
    path.write_text(json.dumps(told))
    for window in told["windows"]:
        trace = folder / window["trace"]
        content = json.loads(gzip.decompress(trace.read_bytes()))
        base = int(content["baseTimeNanoseconds"])
        for event in content["traceEvents"]:
            if "ts" in event:
                end = event["ts"] + event.get("dur", 0)
                event["ts"] = (moved(base + round(event["ts"] * 1000)) - base) / 1000
                if "dur" in event:
                    event["dur"] = (moved(base + round(end * 1000)) - base) / 1000 - event["ts"]
        trace.write_bytes(gzip.compress(json.dumps(content).encode(), 1))


# The job ends within half a second, too short to estimate drift; longer runs test that.
@pytest.mark.parametrize(("source", "within_us"), [("handshake", 50), ("collectives", 300)])
def test_a_wrong_clock_is_corrected(ddp: Path, tmp_path: Path, source: Source, within_us: int):
    """Compared with the estimate of the same source for the right clock, which is accurate to its
    residual."""
    folders = [shutil.copytree(ddp, tmp_path / name) for name in ("right", "wrong")]
    for folder in folders:
        # Ranks of one host share a clock; only a rank of another host gets its clock corrected.
        path = folder / "rank-00001.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "another"}))
    skew(folders[1], 1, -50 * MS, 0)
    right, found = (read_run(folder, clocks=source) for folder in folders)
    assert right.ranks[1].clock.source == source
    assert found.ranks[1].clock.source == source
    own = found.steps.rank == 1
    apart = np.abs(found.steps.end_ns[own] - right.steps.end_ns[own])
    noise = 0 if source == "handshake" else 2 * found.ranks[1].clock.residual_ns
    assert apart.max() < within_us * 1000 + noise
