"""The curve has to reach exactly the peak that the replay found."""

from collections import defaultdict

import pytest

from augury.core.graph.builder import GraphBuilder
from augury.core.memory_curve import memory_curve
from augury.core.timeline import Timeline
from augury.replay.run import replay


def peaks(timeline: Timeline) -> dict[int, int]:
    curve = memory_curve(timeline)
    found: dict[int, int] = defaultdict(int)
    for rank, held in zip(curve.rank.tolist(), curve.held_bytes.tolist(), strict=True):
        found[rank] = max(found[rank], held)
    return dict(found)


def replayed(timeline: Timeline) -> dict[int, int]:
    return {peak.rank: peak.size_bytes for peak in timeline.peak_memory}


def test_made_up_runs(straggling: Timeline, with_servers: Timeline, hostile: Timeline) -> None:
    for timeline in (straggling, with_servers, hostile):
        assert peaks(timeline) == replayed(timeline)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("steady", [False, True])
def test_what_is_held_into_the_next_window(later: bool, steady: bool) -> None:
    builder = GraphBuilder()
    for rank in (builder.rank(), builder.rank()):
        stream = builder.resource("compute", rank=rank)
        first = builder.op("first", rank=rank, resource=stream, work_ns=10)
        second = builder.op("second", rank=rank, resource=stream, work_ns=5, after=[first])
        if steady:
            builder.carry(second, first)
        builder.buffer(100, rank=rank)
        builder.buffer(7, rank=rank, taken_by=first, given_by=second)
        builder.buffer(30, rank=rank, taken_by=second, given_by=first, later=later)
    timeline = replay(builder.build())
    assert peaks(timeline) == replayed(timeline)


def test_nothing_held() -> None:
    builder = GraphBuilder()
    builder.op("only", rank=builder.rank(), work_ns=1)
    assert peaks(replay(builder.build())) == {}


def test_one_point_a_moment(straggling: Timeline) -> None:
    curve = memory_curve(straggling)
    points = list(zip(curve.rank.tolist(), curve.at_ns.tolist(), strict=True))
    assert points == sorted(set(points))
    assert (curve.held_bytes >= 0).all()
