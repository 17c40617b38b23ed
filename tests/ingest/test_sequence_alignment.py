"""Alignment of two ranks whose recordings start some collectives apart and lack others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.core.graph.graph import NONE
from augury.ingest.collectives.matching.collective_sequence import CollectiveSequence
from augury.ingest.collectives.matching.sequence_alignment import Alignment, align_sequences

MS = 1_000_000


def sequence(
    kinds: np.ndarray, ends: np.ndarray, *, keys: np.ndarray | None = None, dur_ns: int = 4 * MS
) -> CollectiveSequence:
    size = len(ends)
    return CollectiveSequence(
        kind=kinds.astype(np.int32),
        size_bytes=np.zeros(size, dtype=np.int64),
        members=np.full(size, NONE, dtype=np.int32),
        label=np.zeros(size, dtype=np.int32),
        key=np.full(size, NONE, dtype=np.int64) if keys is None else keys.astype(np.int64),
        start_ns=ends.astype(np.int64) - dur_ns,
        end_ns=ends.astype(np.int64),
        step=np.full(size, NONE, dtype=np.int32),
    )


@given(
    period=st.integers(1, 6),
    begin=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    end=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    offset_ms=st.sampled_from([0, 3, 700]),
    drift_ppm=st.sampled_from([0, 100]),
    lost=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 100),
)
def test_sequences_that_are_cut_and_have_gaps_align(
    period: int, begin, end, offset_ms: int, drift_ppm: int, lost: float, seed: int
):
    """With steps of different length, also where clocks differ and drift."""
    random = np.random.default_rng(seed)
    kinds = np.arange(60) % period
    ends = 10**18 + np.cumsum(random.integers(5 * MS, 80 * MS, 60))
    noise = random.integers(-20_000, 20_000, 60)
    moved = ends + noise + offset_ms * MS + (ends - 10**18) * drift_ppm // 10**6
    rows = [np.arange(begin[i], 60 - end[i]) for i in range(2)]
    rows = [own[random.random(len(own)) >= lost] for own in rows]
    found = align_sequences(
        sequence(kinds[rows[0]], moved[rows[0]]), sequence(kinds[rows[1]], ends[rows[1]])
    )
    assert isinstance(found, Alignment)
    assert (rows[0][found.own] == rows[1][found.other]).all()
    assert len(found.own) == len(np.intersect1d(*rows))
    assert found.spread_ns < 50_000


def test_sequence_numbers_decide():
    """Equal distances in time say nothing."""
    ends = 10**18 + np.arange(8) * 10 * MS
    own = sequence(np.zeros(6), ends[:6], keys=np.arange(7, 13))
    found = align_sequences(own, sequence(np.zeros(8), ends, keys=np.arange(5, 13)))
    assert isinstance(found, Alignment)
    assert (found.other - found.own == 2).all()
    assert found.line.offset_ns == 20 * MS


def test_sequence_numbers_that_contradict_the_times_do_not_decide():
    random = np.random.default_rng(1)
    ends = 10**18 + np.cumsum(random.integers(5 * MS, 80 * MS, 40))
    own = sequence(np.zeros(40), ends, keys=random.permutation(40))
    found = align_sequences(own, sequence(np.zeros(40), ends, keys=np.arange(40)))
    assert isinstance(found, Alignment)
    assert (found.own == found.other).all()
    assert len(found.own) == 40


def test_sequences_without_common_collectives():
    ends = 10**18 + np.arange(4) * MS
    found = align_sequences(sequence(np.zeros(4), ends), sequence(np.ones(4), ends))
    assert found == "their collectives differ"


def test_a_different_time_is_implausible():
    random = np.random.default_rng(1)
    one, other = (10**18 + np.cumsum(random.integers(MS, 900 * MS, 40)) for _ in range(2))
    found = align_sequences(sequence(np.zeros(40), one), sequence(np.zeros(40), other))
    assert isinstance(found, str)
    assert "at different times" in found
    later = align_sequences(sequence(np.zeros(40), one), sequence(np.zeros(40), one + 10**12))
    assert isinstance(later, str)
    assert "1,000 s apart" in later


@given(seed=st.integers(0, 1000))
def test_ends_that_busy_hosts_notice_late_are_matched_in_order(seed: int):
    random = np.random.default_rng(seed)
    kinds = np.arange(6) % 2
    ends = 10**18 + np.cumsum(random.integers(10 * MS, 30 * MS, 6))
    one, other = (
        sequence(kinds, ends + random.integers(0, 3 * MS, 6), dur_ns=9 * MS) for _ in range(2)
    )
    found = align_sequences(one, other)
    assert isinstance(found, Alignment)
    assert found.own.tolist() == found.other.tolist()
