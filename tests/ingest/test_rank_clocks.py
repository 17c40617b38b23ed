"""Clocks with a known error are corrected: by handshakes, and by collectives alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.ledger import Ledger
from augury.core.trace.trace import Clock, Trace
from augury.ingest.clocks.clock_fits import from_collectives, robust_line
from augury.ingest.clocks.rank_clocks import Source, align, from_common, to_common
from augury.ingest.recorded import read_run

from .written import MS, Run, skewed, true_clock

US = 1_000


def worst_ns(skew: Trace, truth: Trace) -> int:
    assert len(skew.events) == len(truth.events) > 0
    return max(
        int(np.abs(skew.events.start_ns - truth.events.start_ns).max()),
        int(np.abs(skew.steps.end_ns - truth.steps.end_ns).max()),
        int(np.abs(skew.events.arrival_ns - truth.events.arrival_ns).max()),
    )


@pytest.mark.parametrize("offset_ms", [-50, 50])
@pytest.mark.parametrize("drift_ppm", [-100, 100])
@pytest.mark.parametrize(("source", "within_us"), [("handshake", 50), ("collectives", 300)])
@pytest.mark.parametrize("hosts", [("one", "two"), ("same", "same")])
def test_skew_and_drift_are_recovered(
    tmp_path: Path, offset_ms: int, drift_ppm: int, source: Source, within_us: int, hosts
):
    truth = read_run(Run(tmp_path / "true", hosts=hosts).write())
    clocks = (true_clock, skewed(offset_ms * MS, drift_ppm))
    run = Run(tmp_path / "skewed", clocks=clocks, hosts=hosts)
    found = read_run(run.write(), clocks=source)
    assert worst_ns(found, truth) < within_us * US
    clock = found.ranks[1].clock
    assert clock.source == source
    assert clock.drift_ppm == pytest.approx(-drift_ppm, abs=15)
    assert clock.residual_ns < within_us * US
    assert list(found.ledger) == []


def test_ends_of_collectives_align_clocks_without_handshakes(tmp_path: Path):
    run = Run(tmp_path / "run", clocks=(true_clock, skewed(30 * MS, 20)), handshakes=False)
    assert read_run(run.write()).ranks[1].clock.source == "collectives"


def test_one_host_has_one_clock(tmp_path: Path):
    trace = read_run(Run(tmp_path / "run", hosts=("same", "same")).write())
    assert [facts.clock for facts in trace.ranks] == [Clock(), Clock(source="host")]


def test_two_hosts_with_one_name_have_two_clocks(tmp_path: Path):
    run = Run(tmp_path / "run", hosts=("same", "same"), clocks=(true_clock, skewed(9 * MS, 0)))
    clock = read_run(run.write()).ranks[1].clock
    assert clock.source == "handshake"
    assert clock.offset_ns == pytest.approx(-9 * MS, abs=50 * US)


def test_a_clock_without_a_source_is_noted():
    ledger = Ledger()
    clocks = align({0: "one", 1: "two"}, {}, {}, ledger)
    assert clocks == {0: Clock(), 1: Clock()}
    assert ledger["unaligned-clock"].example == "rank 1"


def test_ends_that_stay_apart_are_noted():
    ledger = Ledger()
    ends = {0: {(0, 0): 10**9}, 1: {(0, 0): 2 * 10**9}}
    align({0: "one", 1: "two"}, {}, ends, ledger, source="handshake")
    assert "clocks-disagree" in ledger


def test_ranks_of_another_host_share_its_best_clock():
    random = np.random.default_rng(3)
    times = 10**18 + np.arange(40) * 100 * MS
    ends = {0: {(0, i): int(t) for i, t in enumerate(times)}}
    for rank, noise in ((1, 10 * US), (2, 300 * US)):
        own = times + 40 * MS + random.normal(0, noise, len(times)).astype(int)
        ends[rank] = {(0, i): int(t) for i, t in enumerate(own)}
    clocks = align({0: "one", 1: "two", 2: "two"}, {}, ends, Ledger())
    assert clocks[1] == clocks[2]
    assert abs(clocks[2].offset_ns + 40 * MS) < 20 * US


@given(
    offset=st.integers(-100 * MS, 100 * MS),
    drift_ppm=st.floats(-200, 200),
    seed=st.integers(0, 1000),
)
def test_late_ends_do_not_shift_the_line(offset: int, drift_ppm: float, seed: int):
    """A third of all ends are milliseconds late on one of the two ranks."""
    random = np.random.default_rng(seed)
    times = 10**18 + np.arange(120) * 50 * MS
    late = random.exponential(3 * MS, (2, 120)) * (random.random((2, 120)) < 0.17)
    noise = random.normal(0, 30 * US, 120)
    own = times + offset + (times - 10**18) * drift_ppm / 1e6 + noise + late[1]
    other = times + late[0]
    clock = from_collectives(
        {(0, i): int(t) for i, t in enumerate(own)}, {(0, i): int(t) for i, t in enumerate(other)}
    )
    assert clock is not None
    true = (times + offset + (times - 10**18) * drift_ppm / 1e6).astype(np.int64)
    assert np.abs(to_common(clock, true) - times).max() < 100 * US


def test_impossible_exchanges_are_ignored(tmp_path: Path):
    def change(record):
        for handshake in record["handshake"]:
            handshake["exchanges"] = [[0, 3 * 10**18, 3 * 10**18, 1], [9, 5, 2, 1]]

    clock = read_run(Run(tmp_path / "run", change=change).write()).ranks[1].clock
    assert clock.source == "collectives"


def test_few_points_have_no_drift():
    offset, drift = robust_line(np.array([0.0, 1e9]), np.array([1.0, 3.0]))
    assert (offset, drift) == (2.0, 0.0)


@given(
    offset_ns=st.integers(-(10**12), 10**12),
    drift_ppm=st.floats(-2_000, 2_000),
    seconds=st.floats(-1_000, 1_000),
)
def test_times_move_to_the_common_clock_and_back(offset_ns: int, drift_ppm: float, seconds: float):
    clock = Clock(offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=10**18)
    own = np.array([10**18 + round(seconds * 1e9)], dtype=np.int64)
    assert abs(int((from_common(clock, to_common(clock, own)) - own)[0])) <= 1


def _ends(keys: range, offset_ns: int) -> dict[tuple[int, int], int]:
    return {(0, i): 10**18 + i * 30 * MS + offset_ns for i in keys}


def test_ranks_align_through_others():
    """The third rank shares collectives with the second alone, the fourth with the third."""
    ends = {
        0: _ends(range(10), 0),
        1: _ends(range(5, 20), 7 * MS),
        2: _ends(range(12, 30), -9 * MS),
        3: _ends(range(22, 40), 50 * MS),
    }
    ledger = Ledger()
    clocks = align({rank: f"host{rank}" for rank in ends}, {}, ends, ledger)
    assert [clock.offset_ns for clock in clocks.values()] == [0, -7 * MS, 9 * MS, -50 * MS]
    assert not len(ledger)


@pytest.mark.parametrize(
    ("hosts", "offset_ns"), [(("", ""), -MS), (("one", "one"), 0), (("one", "two"), -MS)]
)
def test_ranks_share_a_clock_where_their_host_is_known(hosts: tuple[str, str], offset_ns: int):
    ends = {0: _ends(range(20), 0), 1: _ends(range(20), MS)}
    clocks = align(dict(enumerate(hosts)), {}, ends, Ledger())
    assert clocks[1].offset_ns == offset_ns
