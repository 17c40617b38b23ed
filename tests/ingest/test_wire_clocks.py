"""Clocks from messages: traffic with known clocks, and rows that contradict it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Clock
from augury.ingest.clocks.rank_clocks import align, to_common
from augury.ingest.wire.clocks.clock_bounds import (
    Delays,
    Flow,
    height,
    lower_hull,
    match,
    pruned,
    wire_bounds,
)
from augury.ingest.wire.clocks.wire_clocks import align_wire

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
EPOCH_NS = 1_790_000_000 * SECOND
SPAN_NS = 5 * SECOND


class Skewed:
    """A clock that is wrong in a known way."""

    def __init__(self, offset_ns: int = 0, ppm: float = 0.0) -> None:
        self.offset_ns, self.ppm = offset_ns, ppm

    def __call__(self, true_ns: np.ndarray) -> np.ndarray:
        gained = np.rint((true_ns - EPOCH_NS) * self.ppm * 1e-6).astype(np.int64)
        return true_ns + self.offset_ns + gained


RIGHT = Skewed()


def traffic(
    sender: int,
    receiver: int,
    clocks: list[Skewed],
    *,
    seed: int = 0,
    num_messages: int = 400,
    base_ns: int = 40 * US,
    queue_ns: int = 500 * US,
    begin_ns: int = EPOCH_NS,
    span_ns: int = SPAN_NS,
) -> Flow:
    """Messages of any size queued one after the other, received in pieces of any size."""
    random = np.random.default_rng([seed, sender, receiver])
    sent = begin_ns + np.sort(random.integers(0, span_ns, num_messages))
    sizes = random.integers(1, 100_000, num_messages)
    ends = np.cumsum(sizes)
    queued = random.exponential(queue_ns, num_messages).astype(np.int64)
    arrived = np.maximum.accumulate(sent + base_ns + queued)
    cuts = np.unique(np.append(random.integers(1, ends[-1], num_messages), ends[-1]))
    holder = np.searchsorted(ends, cuts, side="left")
    begins = np.append(0, cuts[:-1])
    return Flow(
        sender=sender,
        receiver=receiver,
        sent_position=ends - sizes,
        sent_bytes=sizes,
        sent_ns=clocks[sender](sent),
        received_position=begins,
        received_bytes=cuts - begins,
        received_ns=clocks[receiver](arrived[holder]),
    )


def mesh(clocks: list[Skewed], **options) -> list[Flow]:
    return [traffic(a, b, clocks, **options) for a, b in permutations(range(len(clocks)), 2)]


def hosts(clocks: list[Skewed]) -> list[str]:
    return [f"host{i}" for i in range(len(clocks))]


def off_ns(found: Clock, clock: Skewed, *, span_ns: int = SPAN_NS) -> int:
    """Largest error within the recording."""
    times = EPOCH_NS + np.linspace(0, span_ns, 11).astype(np.int64)
    return int(np.abs(to_common(found, clock(times)) - times).max())


def led_back(flows: list[Flow], clocks: list[Skewed]) -> tuple[dict[int, Clock], Ledger]:
    ledger = Ledger()
    return align_wire(wire_bounds(flows, hosts(clocks), ledger), 0, ledger), ledger


@pytest.mark.parametrize("offset_ms", [-50, 50, 365 * 24 * 3600 * 1000])
@pytest.mark.parametrize("ppm", [-100, 0, 100])
@pytest.mark.parametrize("num_hosts", [2, 4])
def test_offset_and_drift_are_recovered(offset_ms: int, ppm: float, num_hosts: int):
    wrong = Skewed(offset_ms * MS, ppm)
    clocks = [RIGHT, wrong, RIGHT, Skewed(-offset_ms * MS, -ppm)][:num_hosts]
    found, ledger = led_back(mesh(clocks), clocks)
    assert list(ledger) == []
    assert found[0] == Clock()
    for process, clock in enumerate(clocks[1:], 1):
        assert found[process].source == "wire"
        assert off_ns(found[process], clock) < 50 * US
        assert off_ns(found[process], clock) < found[process].residual_ns < 500 * US
        assert found[process].drift_ppm == pytest.approx(-clock.ppm, abs=10)


def test_the_reference_clock_may_be_wrong():
    clocks = [Skewed(7 * MS, 50), RIGHT, Skewed(-3 * MS)]
    found, _ = led_back(mesh(clocks), clocks)
    times = EPOCH_NS + np.array([0, SPAN_NS])
    for process in (1, 2):
        apart = to_common(found[process], clocks[process](times)) - clocks[0](times)
        assert np.abs(apart).max() < 50 * US


def test_a_queue_in_one_direction_does_not_shift_clocks():
    """Holds as long as some messages find the queue empty."""
    clocks = [RIGHT, Skewed(50 * MS, 100)]
    flows = [traffic(0, 1, clocks, queue_ns=8 * MS), traffic(1, 0, clocks, queue_ns=10 * US)]
    found, _ = led_back(flows, clocks)
    assert off_ns(found[1], clocks[1]) < 200 * US


def test_constant_asymmetry_stays_within_the_residual():
    clocks = [RIGHT, Skewed(20 * MS, -30)]
    flows = [traffic(0, 1, clocks, base_ns=900 * US), traffic(1, 0, clocks, base_ns=100 * US)]
    found, _ = led_back(flows, clocks)
    assert off_ns(found[1], clocks[1]) < found[1].residual_ns


def test_one_way_traffic_gives_no_clock():
    clocks = [RIGHT, Skewed(5 * MS), Skewed(9 * MS)]
    flows = [*mesh(clocks[:2]), traffic(0, 2, clocks), traffic(1, 2, clocks)]
    found, _ = led_back(flows, clocks)
    assert sorted(found) == [0, 1]
    assert led_back([], clocks)[0] == {0: Clock()}


def test_hosts_not_connected_to_the_reference_are_left_out():
    clocks = [RIGHT, Skewed(5 * MS), Skewed(9 * MS)]
    found, _ = led_back([traffic(1, 2, clocks), traffic(2, 1, clocks)], clocks)
    assert sorted(found) == [0]


def test_over_several_hosts_residuals_add_up():
    clocks = [RIGHT, Skewed(50 * MS, 100), Skewed(-50 * MS, -100)]
    chain = [traffic(a, b, clocks) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    found, _ = led_back(chain, clocks)
    assert off_ns(found[2], clocks[2]) < 100 * US
    assert found[2].residual_ns > found[1].residual_ns > 40 * US


def test_a_short_recording_has_no_drift():
    clocks = [RIGHT, Skewed(50 * MS, 100)]
    found, _ = led_back(mesh(clocks, span_ns=SECOND // 5), clocks)
    assert found[1].drift_ppm == 0
    assert off_ns(found[1], clocks[1], span_ns=SECOND // 5) < 100 * US


@pytest.mark.parametrize("num_wrong", [1, 3, 10])
@pytest.mark.parametrize("by_ns", [1 * MS, 1 * SECOND, 10**6 * SECOND])
def test_contradictory_rows_are_left_out(num_wrong: int, by_ns: int):
    clocks = [RIGHT, Skewed(50 * MS, 100)]
    flows = mesh(clocks)
    for flow in flows:
        wrong = np.random.default_rng(num_wrong).choice(len(flow.received_ns), num_wrong)
        flow.received_ns[wrong] -= by_ns
    found, ledger = led_back(flows, clocks)
    assert ledger["received-before-sent"].count >= 1
    assert "no-line-fits" not in ledger
    assert off_ns(found[1], clocks[1]) < 200 * US


def test_absurd_numbers_are_harmless():
    clocks = [RIGHT, Skewed(50 * MS, 100)]
    flows = mesh(clocks)
    most = np.iinfo(np.int64).max
    for row, value in enumerate((0, -1, most, -most)):
        flows[0].received_ns[row] = value
        flows[1].sent_ns[10 + row] = value
        flows[0].received_position[20 + row] = value
        flows[0].received_bytes[30 + row] = value
        flows[1].sent_position[40 + row] = value
        flows[1].sent_bytes[50 + row] = value
    found, _ = led_back(flows, clocks)
    assert off_ns(found[1], clocks[1]) < 200 * US


@pytest.mark.parametrize(("by_ms", "severity"), [(2, Severity.WARNING), (900, Severity.ERROR)])
def test_a_clock_that_was_adjusted_during_recording(by_ms: int, severity: Severity):
    clocks = [RIGHT, Skewed(50 * MS)]
    there, back = mesh(clocks)
    later = EPOCH_NS + 50 * MS + SPAN_NS // 2
    there.received_ns[there.received_ns > later] += by_ms * MS
    back.sent_ns[back.sent_ns > later] += by_ms * MS
    found, ledger = led_back([there, back], clocks)
    assert ledger["no-line-fits"].severity == severity
    if severity == Severity.WARNING:
        assert found[1].residual_ns > by_ms * MS / 20
    else:
        assert sorted(found) == [0]


def test_processes_of_one_host_share_a_clock():
    clocks = [RIGHT, Skewed(50 * MS), Skewed(50 * MS)]
    flows = [traffic(0, 1, clocks), traffic(2, 0, clocks), traffic(1, 2, clocks)]
    ledger = Ledger()
    bounds = wire_bounds(flows, ["one", "two", "two"], ledger)
    assert bounds.clock_of == (0, 1, 1)
    found = align_wire(bounds, 0, ledger)
    assert found[1] == found[2]
    assert off_ns(found[1], clocks[1]) < 50 * US
    assert align_wire(bounds, 1, ledger)[2] == Clock(source="host")
    assert list(ledger) == []


def test_two_hosts_with_one_name_have_two_clocks():
    clocks = [RIGHT, Skewed(50 * MS)]
    ledger = Ledger()
    found = align_wire(wire_bounds(mesh(clocks), ["same", "same"], ledger), 0, ledger)
    assert "one-host-two-clocks" in ledger
    assert off_ns(found[1], clocks[1]) < 50 * US


def test_a_receive_is_paired_with_the_call_that_sent_its_last_byte():
    flow = Flow(
        sender=0,
        receiver=1,
        # Bytes 30 to 40 were sent by a call that was not kept.
        sent_position=np.array([10, 0, 20, 40]),
        sent_bytes=np.array([10, 10, 10, 10]),
        sent_ns=np.array([200, 100, 300, 500]),
        received_position=np.array([0, 5, 15, 32, 45, 60]),
        received_bytes=np.array([5, 10, 20, 6, 5, 5]),
        received_ns=np.array([1001, 1002, 1003, 1004, 1005, 1006]),
    )
    found = match(flow)
    assert found.sent_ns.tolist() == [100, 200, 300, 500]
    assert found.received_ns.tolist() == [1001, 1002, 1003, 1005]


def test_pruned_rows_cannot_bind():
    random = np.random.default_rng(1)
    sent = EPOCH_NS + np.sort(random.integers(0, 60 * SECOND, 1_000_000))
    every = Delays(sent_ns=sent, received_ns=sent + random.integers(0, 10**9, len(sent)))
    kept = pruned(every)
    assert len(kept) < 300
    for ppm in (-2000, -100, 0, 3, 100, 2000):
        least = [
            (rows.received_ns - rows.sent_ns + (rows.sent_ns - EPOCH_NS) * ppm * 1e-6).min()
            for rows in (every, kept)
        ]
        assert least[0] == pytest.approx(least[1], abs=1)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=300))
def test_all_points_lie_on_or_above_the_hull(points: list[tuple[int, int]]):
    x, y = np.array(points, dtype=np.float64).T
    hull = lower_hull(x, y)
    assert (np.diff(x[hull]) > 0).all()
    slopes = np.diff(y[hull]) / np.diff(x[hull])
    assert (np.diff(slopes) > 0).all()
    assert (y >= np.interp(x, x[hull], y[hull]) - 1e-9).all()
    assert height(x, y, float(x[0])) <= y[0] + 1e-9


ENDS = {
    0: {(0, i): EPOCH_NS + i * 50 * MS for i in range(40)},
    1: {(0, i): EPOCH_NS + i * 50 * MS + 9 * MS for i in range(40)},
}


def wire_clock(offset_ns: int, residual_ns: int) -> dict[int, Clock]:
    line = Clock(offset_ns=offset_ns, since_ns=EPOCH_NS, residual_ns=residual_ns, source="wire")
    return {1: line}


@pytest.mark.parametrize(
    ("residual_us", "taken"), [(30, "wire"), (199, "wire"), (201, "collectives")]
)
def test_the_source_with_the_smallest_residual_is_used(residual_us: int, taken: str):
    ledger = Ledger()
    wire = wire_clock(-9 * MS - 20 * US, residual_us * US)
    clocks = align({0: "one", 1: "two"}, {}, ENDS, ledger, wire=wire)
    assert clocks[1].source == taken
    assert list(ledger) == []


def test_sources_that_differ_by_more_than_their_residuals_are_noted():
    ledger = Ledger()
    wire = wire_clock(-8 * MS, 50 * US)
    clocks = align({0: "one", 1: "two"}, {}, ENDS, ledger, wire=wire)
    assert clocks[1] == wire[1]
    assert ledger["clock-sources-apart"].example == "rank 1: wire and collectives, 1.000 ms"


def test_only_the_chosen_source_is_used():
    wire = wire_clock(-8 * MS, 50 * US)
    names = {0: "one", 1: "two"}
    assert align(names, {}, ENDS, Ledger(), wire=wire, source="wire")[1] == wire[1]
    told = align(names, {}, ENDS, Ledger(), wire=wire, source="collectives")
    assert told[1].source == "collectives"
    ledger = Ledger()
    assert align(names, {}, ENDS, ledger, source="wire")[1] == Clock()
    assert "unaligned-clock" in ledger
