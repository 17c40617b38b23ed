"""Figures by hand: one rank computes for 10 ns, the other for 20; both then reduce for 5."""

import msgspec
import pytest

from augury.core.enums import MemoryKind, OpKind, ResourceKind, Role
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.results.replay import ReplayResult
from augury.core.timeline import Timeline
from augury.predict.summarize import MAX_HOLDERS, summarize
from augury.replay.run import replay


def two_ranks(*, measured: bool = True, server: bool = False) -> Graph:
    builder = GraphBuilder()
    gang = builder.gang()
    ranks = [builder.rank(host=f"h{i}") for i in range(2)]
    if server:
        builder.rank(role=Role.SERVER, host="s")
    for rank, work_ns in zip(ranks, (10, 20), strict=True):
        compute = builder.resource("compute", rank=rank)
        stream = builder.resource("comm", rank=rank, kind=ResourceKind.COMMUNICATION)
        backward = builder.op(
            "bwd", kind=OpKind.BACKWARD, rank=rank, resource=compute, work_ns=work_ns, layer="l"
        )
        builder.op(
            "ar",
            kind=OpKind.ALL_REDUCE,
            rank=rank,
            resource=stream,
            work_ns=5,
            gang=gang,
            after=[backward],
        )
    if measured:
        for rank, step, dur_ns in (
            (0, 0, 20),
            (1, 0, 24),
            (0, 1, 26),
            (1, 1, 22),
            (0, 2, 99),
            (1, 2, 99),
        ):
            builder.measured_step(rank=rank, step=step, dur_ns=dur_ns, explained_ns=dur_ns // 2)
    return builder.build()


@pytest.fixture
def result() -> ReplayResult:
    graph = two_ranks()
    return summarize(replay(graph))


def test_step(result: ReplayResult) -> None:
    assert result.schema_version == 1
    assert result.predicted_step_ns == 25
    # The mean over the ranks of each step took 22, 24 and 99 ns, and no rank is slower for long.
    assert result.measured_step_ns == 24
    assert result.error_pct == pytest.approx(100 * (25 - 24) / 24, abs=1e-3)
    assert result.unexplained_pct == pytest.approx(100 * (1 - 144 / 290), abs=1)
    assert result.interval_ns is None


def test_ranks(result: ReplayResult) -> None:
    assert [(r.rank, r.role, r.host) for r in result.ranks] == [
        (0, "worker", "h0"),
        (1, "worker", "h1"),
    ]
    assert result.ranks[0].measured_step_ns == 26
    assert result.ranks[1].measured_step_ns == 24
    assert result.ranks[1].error_pct == pytest.approx(100 / 24, abs=1e-3)


def test_resources_add_up(result: ReplayResult) -> None:
    for use in result.resources:
        assert use.busy_pct + use.waiting_pct + use.idle_pct == pytest.approx(100, abs=1e-3)
    waiting = {(use.rank, use.name): use.waiting_pct for use in result.resources}
    assert waiting[0, "comm"] == pytest.approx(40)
    assert waiting[1, "comm"] == 0


def test_critical_path_runs_over_the_slow_rank(result: ReplayResult) -> None:
    first = result.critical_path[0]
    assert (first.rank, first.name, first.kind, first.layer) == (1, "bwd", "backward", "l")
    assert (first.resource, first.start_ns, first.dur_ns) == ("compute", 0, 20)
    assert first.reason == "start"
    assert sum(segment.dur_ns for segment in result.critical_path) == 25
    summary = result.critical_path_summary
    assert [(s.name, s.dur_ns) for s in summary.by_kind] == [("backward", 20), ("all_reduce", 5)]
    assert sum(s.share_pct for s in summary.by_reason) == pytest.approx(100)


def test_nothing_measured() -> None:
    graph = two_ranks(measured=False)
    result = summarize(replay(graph))
    assert result.measured_step_ns is None
    assert result.error_pct is None
    assert result.unexplained_pct is None
    assert result.ranks[0].error_pct is None


def test_servers_do_not_count_as_ranks() -> None:
    graph = two_ranks(server=True)
    result = summarize(replay(graph))
    assert (result.num_ranks, result.num_servers) == (2, 1)
    assert (result.ranks[2].role, result.ranks[2].predicted_step_ns) == ("server", None)


def test_memory_of_many_holders_adds_up() -> None:
    builder = GraphBuilder()
    rank = builder.rank()
    builder.op("op", rank=rank, work_ns=1)
    for number in range(MAX_HOLDERS + 5):
        builder.buffer(100 + number, rank=rank, kind=MemoryKind.PARAMETER, layer=f"l{number}")
    only = summarize(replay(builder.build())).ranks[0]
    held = sum(holder.size_bytes for holder in only.peak_memory_holders)
    assert len(only.peak_memory_holders) == MAX_HOLDERS
    assert held + only.peak_memory_other_bytes == only.peak_memory_bytes


def test_json_can_be_read_back(straggling: Timeline) -> None:
    result = summarize(straggling)
    assert msgspec.json.decode(msgspec.json.encode(result), type=ReplayResult) == result
