"""Real jobs over loopback: every byte is counted and attributed."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.wire import Algorithm, MessageKind, Wire, attributed_share
from augury.ingest.open_run import open_run
from augury.ingest.wire.attribution.gloo_messages import all_reduce_lengths
from augury.ingest.wire.attribution.match_messages import SLACK_NS, collectives_in
from augury.ingest.wire.read_wire import read_wire
from tests.capture.conftest import wire_recorder  # noqa: F401
from tests.capture.jobs import start_ranks
from tests.recordings import once

pytest.importorskip("torch")

TRAINING = """
import sys
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [nn.Linear(300, 700), nn.ReLU(), nn.Linear(700, 900), nn.ReLU(), nn.Linear(900, 7)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 300)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Job:
    num_ranks: int
    folder: Path
    trace: Trace
    wire: Wire


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.more)])
def job(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    wire_recorder: Path,  # noqa: ARG001, F811
) -> Job:
    run = recorded_wire(tmp_path_factory, num_ranks=request.param)
    trace = open_run(run)
    return Job(request.param, run, trace, read_wire(run, trace))


def recorded_wire(factory: pytest.TempPathFactory, *, num_ranks: int) -> Path:
    """Two ranks measure the network too."""
    calibration = ["--calibrate", "--calibrate-seconds", "0"] if num_ranks == 2 else []
    options = ["--steps", "4:12", "--wire", *calibration]

    def make(folder: Path) -> str:
        script = folder / "train.py"
        script.write_text(TRAINING)
        augury = [sys.executable, "-m", "augury", "run", "--out", str(folder / "run"), *options]
        job = [*augury, "--", sys.executable, str(script), "20"]
        for done in start_ranks(job, num_ranks=num_ranks):
            assert done.returncode == 0, done.stderr
        return ""

    return once(factory, f"wire-{num_ranks}", make).run


def test_all_bytes_sent_between_ranks_were_received(job: Job):
    ends = job.wire.connections
    ranks = job.wire.ranks_of(ends.process_a), job.wire.ranks_of(ends.process_b)
    # Only gloo's connections: the last message of a store may remain unread.
    between = (ranks[0] >= 0) & (ranks[1] >= 0)
    spoken = between & (np.minimum(ends.sent_a, ends.sent_b) > 0) & (ranks[0] != ranks[1])
    of_gloo = np.unique(job.wire.messages.connection[job.wire.messages.sequence != NONE])
    assert len(of_gloo) == {2: 1, 4: 4}[job.num_ranks]
    assert set(of_gloo.tolist()) <= set(np.flatnonzero(spoken).tolist())
    assert (ends.sent_a[of_gloo] == ends.received_b[of_gloo]).all()
    assert (ends.sent_b[of_gloo] == ends.received_a[of_gloo]).all()
    assert (ends.is_late[between] == 0).all()


def test_messages_have_no_gaps(job: Job):
    """Every kept message between ranks was received after it was sent."""
    rows = job.wire.messages
    of_collectives = rows.sequence != NONE
    assert (rows.received_ns[of_collectives] > rows.send_ns[of_collectives]).all()
    assert (rows.arrived_ns[of_collectives] <= rows.received_ns[of_collectives]).all()
    assert (rows.sent_ns[of_collectives] >= rows.send_ns[of_collectives]).all()
    assert "wire-received-before-sent" not in job.wire.ledger


def test_all_reduces_send_exactly_the_bytes_of_rings(job: Job):
    rows, wire = job.wire.messages, job.wire
    lengths: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    src, dst = wire.ranks_of(rows.src), wire.ranks_of(rows.dst)
    for row in np.flatnonzero(rows.sequence != NONE)[
        np.argsort(rows.turn[rows.sequence != NONE], kind="stable")
    ].tolist():
        key = int(rows.group[row]), int(rows.sequence[row]), int(src[row]), int(dst[row])
        lengths[key].append(int(rows.payload_bytes[row]))
    events = job.trace.events
    sums = np.flatnonzero((events.kind == OpKind.ALL_REDUCE) & (events.sequence != NONE))
    assert len(sums) >= 3 * 4 * job.num_ranks
    for row in sums.tolist():
        rank, size = int(events.rank[row]), int(events.size_bytes[row])
        key = int(events.group[row]), int(events.sequence[row])
        before = (rank - 1) % job.num_ranks
        assert lengths[*key, rank, before] == (
            all_reduce_lengths(size, job.num_ranks, rank).tolist()
        )
    assert (wire.collectives.algorithm == Algorithm.RING).all()
    assert (wire.collectives.payload_bytes == wire.collectives.expected_bytes).all()


def test_messages_lie_within_their_collectives(job: Job):
    """Messages lie between the collective's start on the sender and its end on the receiver, by the
    profiler."""
    rows, wire = job.wire.messages, job.wire
    shared = {(one.group, one.sequence): one for one in collectives_in(job.trace)}
    src, dst = wire.ranks_of(rows.src), wire.ranks_of(rows.dst)
    for row in np.flatnonzero(rows.sequence != NONE).tolist():
        one = shared[int(rows.group[row]), int(rows.sequence[row])]
        assert rows.send_ns[row] >= one.start_ns[int(src[row])] - SLACK_NS
        assert rows.received_ns[row] <= one.end_ns[int(dst[row])] + SLACK_NS


def test_payload_is_attributed(job: Job):
    assert attributed_share(job.wire) >= 0.999
    assert "wire-unexplained" not in job.wire.ledger


def test_messages_of_the_calibration_are_own(job: Job):
    rows = job.wire.messages
    own = int(rows.size_bytes[rows.kind == MessageKind.OWN].sum())
    if job.trace.calibration:
        assert own > 16 << 20
    else:
        assert own < 1 << 20


def test_the_same_all_reduces_are_found_without_a_trace(job: Job):
    alone = read_wire(job.folder)
    found = Counter(alone.collectives.size_bytes.tolist())
    for size, count in Counter(job.wire.collectives.size_bytes.tolist()).items():
        assert found[size] == count
    # Calibration sums whole MiB back to back: lengths alone do not show where one ends, and each
    # direction may be cut at another place.
    of_job = np.isin(alone.collectives.size_bytes, job.wire.collectives.size_bytes)
    assert (alone.collectives.payload_bytes == alone.collectives.expected_bytes)[of_job].all()
    rows = alone.messages
    assert (rows.group[rows.kind == MessageKind.COLLECTIVE] == 0).all()
