"""Runs without a barrier, as under a plan: forward waits for the communication of the previous
step."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from augury.build.recorded.recorded_graph import build_recorded
from augury.build.recorded.without_plan import build_unplanned, has_pieces
from augury.core.enums import OpKind, Phase, StepState
from augury.core.graph.graph import Graph
from augury.core.trace.trace import Events, GradientEvents, Trace
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT
from augury.costs.collective_costs import fit_network
from augury.replay.run import replay
from tests.build.recorded_runs import MS, Item, Job, Run, Send, Transfer, Wait, trace_of
from tests.passes.applied import change_bandwidth

SIZES = (4_000_000, 1_000_000)
STEPS = 8


def followed(num_ranks: int = 3, *, untimed: tuple[int, ...] = (), work_ns: int = 3 * MS) -> Trace:
    """Two pieces per step: the first is needed after half of the next forward, the second before
    it."""
    transfers: dict[int, Transfer] = {}
    programs: list[list[list[Item]]] = []
    for rank in range(num_ranks):
        steps: list[list[Item]] = []
        for step in range(STEPS):
            key = 2 * step
            transfers[key] = Transfer(work_ns, SIZES[0])
            transfers[key + 1] = Transfer(work_ns // 2, SIZES[1])
            scale = 1 + 0.1 * ((rank + step) % 3)
            items: list[Item] = []
            if step:
                items += [Wait(key - 1), Run(200_000, "Optimizer.step#SGD.step", Phase.UPDATE)]
            items.append(Run(round(2 * MS * scale), "aten::mm", Phase.FORWARD))
            if step:
                items += [Wait(key - 2), Run(300_000, "Optimizer.step#SGD.step", Phase.UPDATE)]
            items.append(Run(round(2 * MS * scale), "aten::mm", Phase.FORWARD))
            for place in range(2):
                node = "autograd::engine::evaluate_function: Mm"
                items += [
                    Run(round(3 * MS * scale), node, Phase.BACKWARD),
                    Run(100_000, ACCUMULATES_GRADIENT, Phase.BACKWARD),
                    Send(key + place),
                ]
            items.append(Run(1_000, "Optimizer.step#SGD.step", Phase.UPDATE))
            steps.append(items)
        # Communication in flight when the job ends is awaited as well.
        steps[-1] += [Wait(2 * STEPS - 2), Wait(2 * STEPS - 1), Run(1_000, "end", Phase.UPDATE)]
        programs.append(steps)
    trace = trace_of(
        Job(programs, transfers),
        buckets=((0, 1),),
        sizes=SIZES,
        waits=tuple(OpKind),
        states={10 + step: StepState.PLAIN for step in untimed},
    )
    of_ddp = np.ones(len(trace.gradients), dtype=np.int32)
    return trace.evolve(
        # Pieces have a process group of their own.
        groups=2 * [list(range(num_ranks))],
        gradients=GradientEvents(**(dict(trace.gradients.columns()) | {"group": of_ddp})),
        ranks=[replace(facts, piece_groups=[0]) for facts in trace.ranks],
    )


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("work_ns", [1 * MS, 3 * MS, 9 * MS])
def test_replay_gives_the_recorded_step(num_ranks: int, work_ns: int) -> None:
    trace = followed(num_ranks, work_ns=work_ns)
    steps = replay(build_recorded(trace)).rank_steps
    assert steps.end_ns.tolist() == pytest.approx(trace.steps.end_ns.tolist(), rel=0.01)


def test_the_first_step_of_a_window_waits_for_the_timed_step_before_it() -> None:
    """Steps 13 and 14 were not timed: step 15 waits for the communication of step 14."""
    trace = followed(work_ns=9 * MS, untimed=(3, 4))
    graph = build_recorded(trace)
    assert _awaited_steps(graph)[15] == {15}
    whole = followed(work_ns=9 * MS).steps.end_ns.max() / STEPS
    assert replay(graph).end_ns.max() / (STEPS - 2) == pytest.approx(whole, rel=0.05)


def _awaited_steps(graph: Graph) -> dict[int, set[int]]:
    """For each step of the thread, the steps of the exchanges that it waits for."""
    found: dict[int, set[int]] = {}
    for src, dst in zip(graph.edges.sources().tolist(), graph.edges.dst.tolist(), strict=True):
        if graph.ops.kind[src] == OpKind.ALL_REDUCE:
            found.setdefault(int(graph.ops.step[dst]), set()).add(int(graph.ops.step[src]))
    return found


def test_a_slower_network_lengthens_the_step() -> None:
    graph = build_recorded(followed(work_ns=3 * MS))
    slower, _ = change_bandwidth(graph, fit_network(graph), 0.1)
    assert replay(slower).step_ns > 1.5 * replay(graph).step_ns


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_plan_can_be_replaced_by_stock_ddp_in_the_graph(num_ranks: int) -> None:
    trace = followed(num_ranks, work_ns=3 * MS)
    assert has_pieces(trace)
    graph = build_unplanned(trace)
    gradients = graph.gradients
    assert {graph.strings[int(name)] for name in gradients.name} == {"parameter0", "parameter1"}
    assert len(gradients) == 2 * num_ranks * STEPS
    carried = np.unique(gradients.carried_by)
    assert {OpKind(int(kind)) for kind in graph.ops.kind[carried]} == {OpKind.ALL_REDUCE}
    assert set(graph.ops.size_bytes[carried].tolist()) == {sum(SIZES)}
    assert set(graph.ops.work_ns[carried].tolist()) == {4_500_000}
    of_rank = (graph.ops.rank == 0) & (graph.ops.step == 12)
    updates = graph.ops.work_ns[of_rank & (graph.ops.kind == OpKind.UPDATE)]
    assert updates.sum() == 501_000
    # Everything is waited for at the end of the step.
    assert replay(graph).step_ns > replay(build_recorded(trace)).step_ns


def lanes(num_ranks: int = 2, num_pieces: int = 4) -> Trace:
    """Every step sends small pieces at its end, and waits for all of them."""
    programs: list[list[list[Item]]] = []
    keys = [[num_pieces * step + n for n in range(num_pieces)] for step in range(4)]
    for _ in range(num_ranks):
        steps: list[list[Item]] = []
        for own in keys:
            items: list[Item] = [
                Run(2 * MS, "aten::mm", Phase.FORWARD),
                Run(2 * MS, "autograd::engine::evaluate_function: Mm", Phase.BACKWARD),
                *(Send(key) for key in own),
                Run(1 * MS, "aten::mm", Phase.FORWARD),
                *(Wait(key) for key in own),
                Run(1 * MS, "Optimizer.step#SGD.step", Phase.UPDATE),
            ]
            steps.append(items)
        programs.append(steps)
    transfers = {key: Transfer(2 * MS, 1000) for own in keys for key in own}
    return trace_of(Job(programs, transfers), waits=tuple(OpKind))


def test_late_start_events_do_not_deadlock() -> None:
    """Late starts: on the first rank those of the first two pieces, on the second those of the last
    two."""
    trace = lanes()
    columns = dict(trace.events.columns())
    sent = columns["kind"] == OpKind.ALL_REDUCE
    is_late = sent & ((columns["sequence"] % 4 < 2) == (columns["rank"] == 0))
    asked = columns["arrival_ns"]
    start = np.where(sent, asked + np.where(is_late, 1_500_000, 100), columns["start_ns"])
    end = np.where(sent, asked + 4 * MS, columns["start_ns"] + columns["dur_ns"])
    changed = columns | {"start_ns": start, "dur_ns": end - start}
    steps = replay(build_recorded(trace.evolve(events=Events(**changed)))).rank_steps
    assert len(steps) == 8


def test_events_of_another_step_keep_the_order_of_call_and_wait() -> None:
    """Events may be attributed to the step in which they ran."""
    trace = lanes()
    columns = dict(trace.events.columns())
    is_moved = (columns["kind"] == OpKind.ALL_REDUCE) & (columns["step"] < 13)
    changed = columns | {"step": columns["step"] + is_moved.astype(np.int32)}
    graph = build_recorded(trace.evolve(events=Events(**changed)))
    assert replay(graph).step_ns == pytest.approx(replay(build_recorded(trace)).step_ns, rel=0.01)


def test_second_halves_follow_the_first_halves() -> None:
    """Both ranks send buffers between a first half and its second half. The buffers reach the
    second rank late, after the second half; those for the first rank were sent before."""
    kinds = (OpKind.ALL_TO_ALL, OpKind.BROADCAST, OpKind.ALL_GATHER)
    trace = lanes(num_pieces=3)
    columns = dict(trace.events.columns())
    start, dur = columns["start_ns"].copy(), columns["dur_ns"].copy()
    arrival, kind, group = (columns[name].copy() for name in ("arrival_ns", "kind", "group"))
    piece = columns["sequence"] % 3
    begin = {step: 13 * MS * (step - 10) for step in range(10, 14)}
    at_ms = {
        # Start, end and wait time by rank and piece.
        (0, 0): (4, 5, 5.5, 6),
        (0, 1): (6, 7, 7, 7),
        (0, 2): (7.5, 8.5, 9, 9.5),
        (1, 0): (4, 5, 5.5, 6),
        (1, 1): (9, 10, 10, 10),
        (1, 2): (5, 8.5, 8.5, 8.6),
    }
    for row in (columns["group"] == 0).nonzero()[0].tolist():
        place = int(columns["rank"][row]), int(piece[row])
        from_ms, until_ms, wait_ms, done_ms = at_ms[place]
        is_wait = columns["kind"][row] == OpKind.SYNC
        first, last = (wait_ms, done_ms) if is_wait else (from_ms, until_ms)
        start[row] = begin[int(columns["step"][row])] + round(first * MS)
        dur[row] = round((last - first) * MS)
        arrival[row] = start[row]
        group[row] = int(piece[row] == 1)
        if not is_wait:
            kind[row] = kinds[int(piece[row])]
    changed = columns | {
        "start_ns": start,
        "dur_ns": dur,
        "arrival_ns": arrival,
        "kind": kind,
        "group": group,
    }
    trace = trace.evolve(
        events=Events(**changed),
        groups=2 * [[0, 1]],
        ranks=[replace(facts, piece_groups=[0]) for facts in trace.ranks],
    )
    assert replay(build_recorded(trace)).step_ns > 0
