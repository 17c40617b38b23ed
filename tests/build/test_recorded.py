"""A recorded run as a graph: replayed unchanged, it reproduces the recorded times."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import MemoryKind, OpKind, Phase, ResourceKind, StepState
from augury.core.errors import InputError
from augury.core.graph.graph import NONE, RATE_ONE, Graph
from augury.core.graph.graph_spec import verify
from augury.core.trace.trace import Calibration, MemoryUse, Trace
from augury.core.trace.trace_spec import problems
from augury.replay.run import replay
from tests.build.recorded_runs import MS, DdpRun, Job, Run, Send, Transfer, Wait, ddp_run, trace_of

CLOSE_NS = 3_000


def step_ends(trace: Trace, graph: Graph) -> tuple[list[int], list[int]]:
    """Recorded and replayed step ends of every rank and step in the graph."""
    timeline = replay(graph)
    steps = timeline.rank_steps
    recorded = {
        (int(rank), int(step)): int(end)
        for rank, step, end in zip(
            trace.steps.rank, trace.steps.step, trace.steps.end_ns, strict=True
        )
    }
    keys = list(zip(steps.rank.tolist(), steps.step.tolist(), strict=True))
    return [recorded[key] for key in keys], steps.end_ns.tolist()


def assert_replays(trace: Trace, *, close_ns: int = CLOSE_NS) -> Graph:
    assert list(problems(trace)) == []
    graph = build_recorded(trace)
    verify(graph)
    recorded, replayed = step_ends(trace, graph)
    assert replayed == pytest.approx(recorded, abs=close_ns)
    return graph


@st.composite
def ddp_runs(draw: st.DrawFn) -> DdpRun:
    num_gradients = draw(st.integers(1, 7))
    cuts = sorted(draw(st.sets(st.integers(1, num_gradients), max_size=num_gradients)))
    edges = [0, *(cut for cut in cuts if cut < num_gradients), num_gradients]
    buckets = [list(range(a, b)) for a, b in pairwise(edges)]
    few = st.integers(20_000, 5 * MS)
    num_ranks, num_steps = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    places = [(rank, step) for rank in range(num_ranks) for step in range(num_steps)]
    return ddp_run(
        num_ranks=num_ranks,
        num_steps=num_steps,
        sizes=[draw(st.integers(1_000, 8_000_000)) for _ in range(num_gradients)],
        buckets=buckets,
        forward=draw(st.lists(few, min_size=1, max_size=3)),
        backward=[draw(few) for _ in range(num_gradients)],
        copies=[draw(st.integers(0, 50_000)) for _ in range(num_gradients)],
        ns_per_byte=draw(st.floats(0.1, 8)),
        latency_ns=draw(st.integers(1_000, MS)),
        vary={place: draw(st.floats(0.7, 1.5)) for place in places},
        compute_rate=draw(st.sampled_from([1.0, 0.8, 0.5])),
        broadcast=draw(st.booleans()),
        micro_batches=draw(st.integers(1, 2)),
        unseen=draw(st.sampled_from([0, 70_000])),
        detailed=[num_steps - 1] if num_steps > 1 and draw(st.booleans()) else [],
    )


@settings(max_examples=80)
@given(ddp_runs(), st.booleans())
def test_replays_to_the_recorded_step_ends(run: DdpRun, delays: bool) -> None:
    assert_replays(run.trace(delays=delays))


@st.composite
def programs(draw: st.DrawFn) -> Job:
    """Collectives of the program itself, issued early and waited for late, as in FSDP."""
    num_ranks, num_steps = draw(st.integers(2, 3)), draw(st.integers(1, 2))
    per_step = draw(st.integers(1, 4))
    kinds = st.sampled_from([OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_REDUCE])
    transfers = {
        key: Transfer(draw(st.integers(1_000, 4 * MS)), 1_000_000, draw(kinds))
        for key in range(num_steps * per_step)
    }
    order: list[list[Send | Wait | None]] = []
    for step in range(num_steps):
        items: list[Send | Wait | None] = [None]
        for key in range(step * per_step, (step + 1) * per_step):
            items += [Send(key), None]
        for key in range(step * per_step, (step + 1) * per_step):
            items.insert(draw(st.integers(items.index(Send(key)) + 2, len(items))), Wait(key))
        order.append([*items, None])
    work = st.integers(10_000, 3 * MS)
    return Job(
        [
            [
                [item or Run(draw(work), "aten::mm", Phase.FORWARD) for item in items]
                for items in order
            ]
            for _ in range(num_ranks)
        ],
        transfers,
        compute_rate=draw(st.sampled_from([1.0, 0.7])),
    )


@settings(max_examples=60)
@given(programs())
def test_waits_of_the_program_are_replayed(job: Job) -> None:
    assert_replays(trace_of(job, waits=tuple(OpKind)))


def test_rates_are_recovered() -> None:
    """Compute runs at 60 % during communication; transfers slow down during compute."""
    calibration = [
        Calibration(
            collective="all_reduce",
            group=0,
            size_bytes=4 << 20,
            concurrent=1,
            beside_compute=beside,
            durations_ns=[round(4 * MS / (0.8 if beside else 1))] * 3,
        )
        for beside in (False, True)
    ]
    run = ddp_run(compute_rate=0.6, transfer_rate=0.8, ns_per_byte=2.0)
    graph = assert_replays(run.trace(calibration=calibration))
    rules = graph.interference
    kinds = graph.resources.kind
    of_compute = rules.rate[kinds[rules.victim] == ResourceKind.COMPUTE] / RATE_ONE
    of_transfers = rules.rate[kinds[rules.victim] == ResourceKind.COMMUNICATION] / RATE_ONE
    assert of_compute == pytest.approx([0.6, 0.6], rel=0.01)
    assert of_transfers == pytest.approx([0.8, 0.8], rel=0.01)
    reduced = graph.ops.kind == OpKind.ALL_REDUCE
    assert graph.ops.work_ns[reduced] == pytest.approx(np.full(12, 10_100_000), rel=0.01)


def test_compute_work_excludes_interference() -> None:
    run = ddp_run(compute_rate=0.5, slower={1: 1.4})
    graph = assert_replays(run.trace())
    for rank, scale in ((0, 1.0), (1, 1.4)):
        first = (graph.ops.rank == rank) & (graph.ops.step == 10)
        forward = graph.ops.work_ns[first & (graph.ops.kind == OpKind.FORWARD)]
        backward = graph.ops.work_ns[first & (graph.ops.kind == OpKind.BACKWARD)]
        assert forward.sum() == pytest.approx(5 * MS * scale, rel=1e-3)
        assert backward.sum() == pytest.approx(11 * MS * scale, rel=1e-3)


def test_waiting_is_not_counted_as_work() -> None:
    run = ddp_run(ns_per_byte=20.0, copies=(0, 0, 0, 0))
    graph = assert_replays(run.trace())
    thread = ~((graph.ops.kind >= OpKind.ALL_REDUCE) & (graph.ops.kind <= OpKind.PULL))
    of_rank = graph.ops.work_ns[thread & (graph.ops.rank == 0)].sum()
    assert of_rank == pytest.approx(3 * 17 * MS, rel=1e-3)


def test_transfers_share_their_link() -> None:
    run = ddp_run(backward=(MS, 1_000, 1_000, 1_000), latency_ns=0, ns_per_byte=4.0)
    graph = assert_replays(run.trace())
    reduced = graph.ops.kind == OpKind.ALL_REDUCE
    assert graph.ops.work_ns[reduced] == pytest.approx(np.full(12, 20 * MS), rel=1e-3)
    assert (graph.resources.capacity[graph.ops.resource[reduced]] == RATE_ONE).all()


def test_collectives_of_the_program_are_waited_for() -> None:
    graph = assert_replays(ddp_run(broadcast=True, slower={0: 2.0}).trace())
    for op in np.flatnonzero(graph.ops.kind == OpKind.BROADCAST).tolist():
        waiting = graph.edges.of(op).tolist()
        assert [OpKind(int(graph.ops.kind[after])) for after in waiting] == [OpKind.FORWARD]


def test_only_the_last_of_several_backwards_sends() -> None:
    graph = assert_replays(ddp_run(micro_batches=3).trace())
    assert len(graph.gradients) == 2 * 3 * 4
    for row in range(len(graph.gradients)):
        made, carried = graph.gradients.made_by[row], graph.gradients.carried_by[row]
        same = (graph.ops.rank == graph.ops.rank[made]) & (graph.ops.step == graph.ops.step[made])
        backward = np.flatnonzero(same & (graph.ops.kind == OpKind.BACKWARD))
        assert (backward > made).sum() < 8
        assert carried not in backward


@pytest.mark.parametrize("waits", [(), (OpKind.BROADCAST,)], ids=["in-cpp", "in-python"])
def test_every_backward_that_reduces_its_gradients_is_followed_by_a_wait(
    waits: tuple[OpKind, ...],
) -> None:
    run = ddp_run(micro_batches=3, every_backward=True, broadcast=True, ns_per_byte=5.0)
    graph = assert_replays(run.trace(waits=waits))
    ops = graph.ops
    work_ns = {
        kind: ops.work_ns[(ops.kind == kind) & (ops.rank == 0) & (ops.step == 11)].sum()
        for kind in (OpKind.BACKWARD, OpKind.ALL_REDUCE, OpKind.UNEXPLAINED)
    }
    assert work_ns[OpKind.UNEXPLAINED] < 0.01 * work_ns[OpKind.BACKWARD]
    assert work_ns[OpKind.BACKWARD] == pytest.approx(3 * 11 * MS, rel=0.01)
    assert work_ns[OpKind.ALL_REDUCE] == pytest.approx(3 * (2 * 100_000 + 50 * MS), rel=0.01)


def test_gradients_are_mapped_to_their_bucket() -> None:
    graph = assert_replays(ddp_run().trace())
    gradients, ops = graph.gradients, graph.ops
    assert gradients.size_bytes[:4].tolist() == [4_000_000, 1_000_000, 2_000_000, 3_000_000]
    assert [graph.strings[int(name)] for name in gradients.name[:2]] == ["parameter0", "parameter1"]
    assert len(set(gradients.carried_by[:4].tolist())) == 2
    assert (ops.size_bytes[gradients.carried_by] == 5_000_000).all()
    assert (ops.kind[gradients.used_by] == OpKind.COPY).all()
    for made, carried in zip(gradients.made_by[[1, 3]], gradients.carried_by[[1, 3]], strict=True):
        assert made in graph.predecessors.of(int(carried))


def test_without_gradients_buckets_are_those_of_the_program() -> None:
    run = ddp_run()
    trace = run.trace().evolve(gradients=ddp_run(num_steps=1).trace().gradients.empty())
    graph = build_recorded(trace)
    verify(graph)
    assert len(graph.gradients) == 0
    assert np.count_nonzero(graph.ops.kind == OpKind.ALL_REDUCE) == 12


def test_copies_come_from_detailed_steps() -> None:
    """A timed step does not show copies; the last step, recorded in detail, is not replayed."""
    run = ddp_run(num_steps=4, detailed=[3], ns_per_byte=3.0)
    graph = assert_replays(run.trace())
    assert sorted(set(graph.ops.step.tolist())) == [10, 11, 12]
    copies = graph.ops.work_ns[(graph.ops.kind == OpKind.COPY) & (graph.ops.step == 10)]
    assert copies.tolist() == pytest.approx([50_000, 50_000] * 2, abs=2_000)


def unexplained_share(graph: Graph) -> float:
    missing = 1 - graph.measured.explained_ns.sum() / graph.measured.dur_ns.sum()
    return float(missing)


def test_unrecorded_time_stays_unexplained() -> None:
    run = ddp_run(unseen=500_000, copies=(0, 0, 0, 0))
    graph = assert_replays(run.trace())
    unexplained = graph.ops.kind == OpKind.UNEXPLAINED
    assert graph.ops.work_ns[unexplained].sum() == pytest.approx(2 * 3 * MS, rel=0.01)
    total = sum(replay(graph).rank_steps.end_ns[[2, 5]])
    assert unexplained_share(graph) == pytest.approx(6 * MS / total, rel=0.01)


def test_detailed_steps_tell_how_much_of_the_gaps_is_work() -> None:
    """The detailed step covers all but 0.5 ms of its 1 ms of gaps with additional events."""
    run = ddp_run(num_steps=4, unseen=500_000, copies=(0, 0, 0, 0), ns_per_byte=0.1)
    trace = run.trace(states={13: StepState.DETAILED})
    everything = build_recorded(trace)
    assert unexplained_share(everything) == pytest.approx(1 / 18, rel=0.05)
    main = trace.events.step == 13
    longer = trace.events.dur_ns + np.where(
        main & (trace.events.name == trace.events.name[0]), 250_000, 0
    )
    assert longer.sum() > trace.events.dur_ns.sum()
    # Two forward events of 13, each reaching 0.25 ms further into what follows it.
    columns = dict(trace.events.columns()) | {"dur_ns": longer}
    seen_more = build_recorded(trace.evolve(events=type(trace.events)(**columns)))
    assert unexplained_share(seen_more) < unexplained_share(everything)


def test_measured_steps_lie_outside_of_recording_windows() -> None:
    run = ddp_run(num_steps=5, slower={1: 1.2})
    trace = run.trace(states={10: StepState.PLAIN, 11: StepState.PLAIN, 14: StepState.DISTURBED})
    graph = build_recorded(trace)
    assert sorted(set(graph.measured.step.tolist())) == [10, 11]
    assert sorted(set(graph.ops.step.tolist())) == [12, 13]


def without_rank(trace: Trace, rank: int) -> Trace:
    """Removes a rank as if its files were lost; the others still list it as a member."""

    def kept(table):
        stays = table.rank != rank
        return type(table)(**{name: values[stays] for name, values in table.columns()})

    return trace.evolve(
        events=kept(trace.events),
        steps=kept(trace.steps),
        gradients=kept(trace.gradients),
        memory=kept(trace.memory),
        ranks=[facts for facts in trace.ranks if facts.rank != rank],
    )


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_graph_is_built_without_a_missing_rank(missing: int) -> None:
    trace = without_rank(ddp_run(num_ranks=3).trace(), missing)
    graph = build_recorded(trace)
    verify(graph)
    assert graph.num_ranks == 2
    hosts = [graph.strings[int(host)] for host in graph.ranks.host]
    assert hosts == [f"host{rank}" for rank in range(3) if rank != missing]
    assert replay(graph).step_ns == pytest.approx(
        int(np.median(trace.steps.end_ns - trace.steps.start_ns)), abs=CLOSE_NS
    )


def with_states(trace: Trace, changed: dict[tuple[int, int], StepState]) -> Trace:
    state = trace.steps.state.copy()
    for row in range(len(trace.steps)):
        place = int(trace.steps.rank[row]), int(trace.steps.step[row])
        state[row] = changed.get(place, state[row])
    columns = dict(trace.steps.columns()) | {"state": state}
    return trace.evolve(steps=type(trace.steps)(**columns))


def test_a_step_that_only_one_rank_timed_is_left_out() -> None:
    trace = with_states(ddp_run(num_steps=4).trace(), {(1, 10): StepState.PLAIN})
    graph = build_recorded(trace)
    assert sorted(set(graph.ops.step.tolist())) == [11, 12, 13]
    assert graph.num_ranks == 2


def test_ranks_without_common_timed_steps_use_the_rank_with_most() -> None:
    """The ranks have no common step: the rank with more steps is used alone."""
    plain = {(0, step): StepState.PLAIN for step in (11, 12, 13)}
    plain[1, 10] = StepState.PLAIN
    graph = build_recorded(with_states(ddp_run(num_steps=4).trace(), plain))
    verify(graph)
    assert sorted(set(graph.ops.step.tolist())) == [11, 12, 13]
    assert [graph.strings[int(host)] for host in graph.ranks.host] == ["host1"]


def test_a_trace_without_timed_steps_is_refused() -> None:
    trace = ddp_run().trace(states=dict.fromkeys(range(10, 13), StepState.PLAIN))
    with pytest.raises(InputError, match="no timed step") as caught:
        build_recorded(trace)
    assert "--steps" in caught.value.remedy


def test_a_step_without_its_events_is_unexplained() -> None:
    trace = ddp_run(num_ranks=1).trace()
    empty = trace.evolve(events=trace.events.empty())
    graph = build_recorded(empty)
    verify(graph)
    assert (graph.ops.kind == OpKind.UNEXPLAINED).all()
    assert unexplained_share(graph) == pytest.approx(1)


def test_memory_is_held_for_good_or_from_forward_to_backward() -> None:
    trace = ddp_run().trace()
    memory = MemoryUse(
        rank=[0, 0, 1],
        kind=[MemoryKind.PARAMETER, MemoryKind.ACTIVATION, MemoryKind.ACTIVATION],
        layer=[NONE, NONE, NONE],
        size_bytes=[1_000, 500, 700],
    )
    graph = build_recorded(trace.evolve(memory=memory))
    peaks = {peak.rank: peak for peak in replay(graph).peak_memory}
    assert peaks[0].size_bytes == 1_500
    assert peaks[1].size_bytes == 700


def test_the_graph_keeps_the_ledger_of_the_trace() -> None:
    trace = ddp_run().trace()
    trace.ledger.note("missing-rank", "rank 7 left no trace", remedy="look at its host")
    graph = build_recorded(trace)
    assert [anomaly.name for anomaly in graph.ledger] == ["missing-rank"]


def with_map_of_used_parameters(run: DdpRun, size_bytes: int = 292) -> DdpRun:
    """Adds the all-reduce that DDP sends after its buckets if parameters may be unused."""
    transfers = dict(run.job.transfers)
    programs: list[list[list[Any]]] = []
    for steps in run.job.programs:
        programs.append([])
        for number, items in enumerate(steps):
            key = 1_000 + number
            transfers[key] = Transfer(100_000, size_bytes)
            last = max(i for i, item in enumerate(items) if isinstance(item, Send))
            programs[-1].append([*items[: last + 1], Send(key), *items[last + 1 :]])
            programs[-1][-1].insert(-1, Wait(key))
    return replace(run, job=replace(run.job, programs=programs, transfers=transfers))


@pytest.mark.parametrize("buckets", [((0, 1, 2, 3),), ((0,), (1, 2, 3))])
def test_buckets_are_found_beside_the_map_of_used_parameters(
    buckets: tuple[tuple[int, ...], ...],
) -> None:
    graph = build_recorded(with_map_of_used_parameters(ddp_run(buckets=buckets)).trace())
    carried = graph.ops.size_bytes[graph.gradients.carried_by]
    sizes = [sum((4_000_000, 1_000_000, 2_000_000, 3_000_000)[i] for i in own) for own in buckets]
    assert set(carried.tolist()) == set(sizes)


def test_a_small_transfer_behind_a_bucket_takes_no_share_of_the_link() -> None:
    """A bucket's work is its own time on the link, so half the rate doubles it."""
    plain = ddp_run(buckets=((0, 1, 2, 3),), copies=(0, 0, 0, 0))
    works = []
    for run in (plain, with_map_of_used_parameters(plain)):
        graph = build_recorded(run.trace())
        works.append(graph.ops.work_ns[graph.gradients.carried_by[0]])
    assert works[1] == pytest.approx(works[0], abs=120_000)
    assert works[1] >= works[0]
