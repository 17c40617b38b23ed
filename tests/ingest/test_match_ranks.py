"""Collectives of generated jobs are matched whatever the recordings lack."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, StepState
from augury.core.errors import InputError
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.imported import import_traces
from augury.replay.run import replay
from tests.ingest.synthetic_jobs import Files, Job
from tests.ingest.trace_variants import (
    Change,
    cut_head,
    cut_tail,
    drop_collectives,
    drop_ranks,
    is_collective_kernel,
    keep_steps,
    rename_groups,
    shift_step_numbers,
    write_set,
)

APART = {1: (300_000.0, 40.0), 2: (-120_000.0, -30.0), 3: (2_000_000.0, 5.0)}


def imported(files: Files, out: Path, *changes: Change, seed: int = 1) -> Trace:
    for change in changes:
        change(files, random.Random(seed))
    trace = import_traces([write_set(files, out)])
    assert list(problems(trace)) == []
    return trace


def matched(trace: Trace) -> dict[tuple[int, int], dict[int, str]]:
    """Names of the kernels of each matched collective, by rank."""
    found: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    e = trace.events
    for row in np.flatnonzero(e.sequence >= 0).tolist():
        own = found[int(e.group[row]), int(e.sequence[row])]
        assert int(e.rank[row]) not in own
        own[int(e.rank[row])] = trace.name(row)
    return found


def check_matches(trace: Trace, *, members: int) -> int:
    """All parts of a collective have the same name. Returns the number of collectives that all
    ``members`` have."""
    found = matched(trace)
    assert all(len(set(own.values())) == 1 for own in found.values())
    return sum(len(own) == members for own in found.values())


def transfers(files: Files) -> dict[str, int]:
    """Number of recorded parts of each collective or message."""
    return Counter(
        event["name"]
        for content in files.values()
        for event in content["traceEvents"]
        if is_collective_kernel(event)
    )


@pytest.mark.parametrize("has_sizes", [True, False])
@pytest.mark.parametrize("has_numbers", [True, False])
@pytest.mark.parametrize("clocks", [{}, APART], ids=["one clock", "clocks apart"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.25], ids="{:.0%} lost".format)
def test_all_collectives_are_matched(
    tmp_path: Path, has_sizes: bool, has_numbers: bool, clocks: dict, share: float
):
    job = Job(has_sizes=has_sizes, has_numbers=has_numbers, clocks=clocks, num_layers=8)
    changes = [drop_collectives(share)] if share else []
    trace = imported(job.files(), tmp_path, *changes)
    assert check_matches(trace, members=4) == 32
    assert ("restored-communication" in trace.ledger) == bool(share)
    assert "unmatched-communication" not in trace.ledger


@pytest.mark.parametrize("seed", range(4))
def test_dense_collectives_of_one_kind_without_sizes(tmp_path: Path, seed: int):
    """Collectives every 150 us, of which a fifth is lost, on clocks that differ by seconds."""
    job = Job(
        num_steps=3,
        num_layers=40,
        layer_us=40.0,
        transfer_us=60.0,
        jitter_us=25.0,
        imbalance=2.0,
        has_sizes=False,
        clocks=APART,
        seed=seed,
    )
    trace = imported(job.files(), tmp_path, drop_collectives(0.2), seed=seed)
    # Ends of the recordings are not covered on all ranks.
    assert check_matches(trace, members=4) >= 120 - 4


@pytest.mark.parametrize("drift_ppm", [50.0, -180.0])
def test_clocks_that_drift_over_a_long_recording(tmp_path: Path, drift_ppm: float):
    job = Job(
        num_ranks=2,
        num_steps=60,
        num_layers=4,
        layer_us=120_000.0,
        imbalance=0.2,
        clocks={1: (40_000.0, drift_ppm)},
    )
    files = job.files()
    trace = imported(files, tmp_path, drop_collectives(0.1))
    assert check_matches(trace, members=2) == len(transfers(files)) > 230
    clock = trace.ranks[1].clock
    assert clock.drift_ppm == pytest.approx(-drift_ppm, abs=1.0)
    assert spread_ns(trace) < 60_000


def spread_ns(trace: Trace) -> int:
    """Largest distance of the ends of one collective on the common clock."""
    ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    e = trace.events
    for row in np.flatnonzero(e.sequence >= 0).tolist():
        ends[int(e.group[row]), int(e.sequence[row])].append(int(e.start_ns[row] + e.dur_ns[row]))
    return max(max(own) - min(own) for own in ends.values())


def grid(rank: int) -> list[tuple[int, ...]]:
    """Two groups per rank in a grid of 2 x 4: ranks of a row, ranks of a column."""
    row, column = divmod(rank, 4)
    return [
        tuple(4 * row + i for i in range(4)),
        tuple(4 * i + column for i in range(2)),
    ]


@pytest.mark.parametrize("has_numbers", [True, False])
def test_several_communicators_on_several_hosts(tmp_path: Path, has_numbers: bool):
    """Most ranks share no collective with the first rank; their clocks are found through others."""
    clocks = dict.fromkeys(range(4, 8), (700000.0, 20.0))
    job = Job(
        num_ranks=8,
        groups=grid,
        has_numbers=has_numbers,
        clocks=clocks,
        hosts={rank: f"host{rank // 4}" for rank in range(8)},
        num_layers=8,
    )
    trace = imported(job.files(), tmp_path, drop_collectives(0.05))
    found = matched(trace)
    assert all(len(set(own.values())) == 1 for own in found.values())
    assert len(found) == 4 * (4 * 2 + 4 * 4)
    assert all(len(own) == len(trace.groups[group]) for (group, _), own in found.items())
    assert spread_ns(trace) < 100_000
    assert {facts.clock.source for facts in trace.ranks[4:]} == {"collectives"}


@pytest.mark.parametrize("has_numbers", [True, False])
def test_replicas_that_rarely_communicate(tmp_path: Path, has_numbers: bool):
    """Tensor-parallel ranks reduce in each layer, replicas once in a step: most collectives of a
    rank are among ranks that the next replica shares no group with."""
    job = Job(
        groups=lambda rank: [(0, 1) if rank < 2 else (2, 3)] * 7 + [(rank % 2, rank % 2 + 2)],
        has_numbers=has_numbers,
        clocks=APART,
        num_layers=8,
    )
    trace = imported(job.files(), tmp_path)
    assert check_matches(trace, members=2) == 4 * (2 * 7 + 2)
    assert "unmatched-rank" not in trace.ledger


def test_renamed_groups_and_streams(tmp_path: Path):
    job = Job(num_ranks=8, groups=grid, has_numbers=True, num_layers=8)
    trace = imported(job.files(), tmp_path, rename_groups(), drop_collectives(0.05))
    found = matched(trace)
    assert all(len(set(own.values())) == 1 for own in found.values())
    assert len(found) == 4 * (4 * 2 + 4 * 4)
    # Two rows and four columns, each one group.
    assert len({group for group, _ in found}) == 6


def test_two_communicators_of_the_same_ranks(tmp_path: Path):
    """Both run at once, with equal kinds and sizes, and both count from the same number."""
    files = Job(has_numbers=True, num_layers=6, is_blocking=False).files()
    for content in files.values():
        for event in content["traceEvents"]:
            args = event["args"]
            if "Seq" in args:
                args["Process Group Name"] = f"group {args['Seq'] % 2}"
                args["Seq"] //= 2
    trace = imported(files, tmp_path, rename_groups(also_streams=False), drop_collectives(0.1))
    assert check_matches(trace, members=4) == 24
    assert len({group for group, _ in matched(trace)}) == 2


def test_sends_pair_with_receives(tmp_path: Path):
    job = Job(pipeline=True, num_layers=5)
    files = job.files()
    trace = imported(files, tmp_path)
    found = matched(trace)
    assert len(found) == 4 * 5 * 3
    assert all(len(own) == 2 and len(set(own.values())) == 1 for own in found.values())
    e = trace.events
    assert (e.kind == OpKind.SEND).sum() == (e.kind == OpKind.RECV).sum() == 60


@pytest.mark.parametrize("clocks", [{}, APART], ids=["one clock", "clocks apart"])
def test_a_lost_end_of_a_message_is_restored(tmp_path: Path, clocks: dict):
    files = Job(pipeline=True, num_layers=5, clocks=clocks).files()
    trace = imported(files, tmp_path, drop_collectives(0.1))
    found = matched(trace)
    assert all(len(own) == 2 and len(set(own.values())) == 1 for own in found.values())
    assert len(found) == len(transfers(files)) >= 54
    e = trace.events
    assert (e.kind == OpKind.SEND).sum() == (e.kind == OpKind.RECV).sum() == len(found)
    assert trace.ledger["restored-communication"].count == 2 * len(found) - sum(
        transfers(files).values()
    )


@pytest.mark.parametrize(
    "changes",
    [
        (cut_head(0.3),),
        (cut_tail(0.3),),
        (cut_tail(0.3, keeps_open=True),),
        (keep_steps(2),),
        (keep_steps(3, last=True), shift_step_numbers()),
        (drop_ranks(1),),
        (cut_head(0.2), cut_tail(0.2), drop_collectives(0.05)),
    ],
    ids=["head", "tail", "open tail", "fewer steps", "other numbers", "lost rank", "all of it"],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_prediction_uses_complete_steps(tmp_path: Path, changes: tuple[Change, ...], seed: int):
    job = Job(num_steps=5, seed=seed)
    trace = imported(job.files(), tmp_path / "cut", *changes, seed=seed)
    names = [set(own.values()) for own in matched(trace).values()]
    assert all(len(own) == 1 for own in names)
    graph = build_recorded(trace)
    timeline = replay(graph)
    measured = graph.measured
    assert graph.num_steps >= 2
    for row in range(graph.num_ranks):
        own = measured.dur_ns[measured.rank == row]
        steps = timeline.rank_steps.of_rank(row)
        assert len(own) == graph.num_steps
        span = int(steps.end_ns.max() - steps.start_ns.min())
        assert span == pytest.approx(int(own.sum()), rel=0.02)


def test_a_cut_rank_is_left_out_rather_than_most_steps(tmp_path: Path):
    trace = imported(Job(num_steps=6).files(), tmp_path, keep_steps(1))
    used = trace.steps.state == StepState.TIMED
    assert len(np.unique(trace.steps.rank[used])) == 3
    assert len(np.unique(trace.steps.step[used])) == 6
    assert trace.ledger["rank-without-complete-steps"].count == 1


def test_steps_of_other_numbers_are_the_same_steps(tmp_path: Path):
    trace = imported(Job().files(), tmp_path, shift_step_numbers())
    assert "step-numbers-differ" in trace.ledger
    starts: dict[int, list[int]] = defaultdict(list)
    for step, start_ns in zip(
        trace.steps.step.tolist(), trace.steps.start_ns.tolist(), strict=True
    ):
        starts[step].append(start_ns)
    assert {len(own) for own in starts.values()} == {4}
    assert all(max(own) - min(own) < 1_000_000 for own in starts.values())


def test_ranks_of_another_job_are_left_out_with_the_reason(tmp_path: Path):
    files = Job().files()
    files[3] = replace(Job(), seed=7, imbalance=3.0).files()[3]
    trace = imported(files, tmp_path)
    assert trace.ledger["unmatched-rank"].count == 1
    assert trace.ledger["unmatched-rank"].example.startswith("rank 3: ")
    assert 3 not in trace.steps.rank[trace.steps.state == StepState.TIMED]
    assert check_matches(trace, members=3) == 24


def test_two_ranks_of_two_jobs_are_refused(tmp_path: Path):
    files = Job(num_ranks=2).files()
    files[1] = replace(Job(num_ranks=2), seed=7, imbalance=3.0).files()[1]
    with pytest.raises(InputError, match="matches those of other ranks"):
        import_traces([write_set(files, tmp_path)])


def lose_one_rank_of_a_group(files: Files, _: random.Random) -> None:
    del files[2]


@pytest.mark.parametrize("change", [drop_ranks(1), lose_one_rank_of_a_group])
def test_waits_for_a_lost_rank_are_stated(
    tmp_path: Path, change: Callable[[Files, random.Random], None]
):
    trace = imported(Job().files(), tmp_path, change)
    graph = build_recorded(trace)
    assert "unresolved-wait" in graph.ledger
    assert 0 < graph.unresolved_wait < 0.6
