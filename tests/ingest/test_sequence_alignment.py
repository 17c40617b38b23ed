"""Alignment of two ranks whose recordings start some collectives apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.ingest.collectives.sequence_alignment import (
    Alignment,
    CollectiveSequence,
    align_sequences,
)

MS = 1_000_000


def cut(signature: list[int], ends: np.ndarray, first: int, last: int) -> CollectiveSequence:
    return CollectiveSequence([(w,) for w in signature[first:last]], ends[first:last])


@given(
    period=st.integers(1, 6),
    begin=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    end=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    offset_ms=st.sampled_from([0, 3, 700]),
    seed=st.integers(0, 100),
)
def test_sequences_cut_off_at_both_ends_align(period: int, begin, end, offset_ms: int, seed: int):
    """With steps of different length, also where clocks differ."""
    random = np.random.default_rng(seed)
    signature = [i % period for i in range(60)]
    ends = 10**18 + np.cumsum(random.integers(5 * MS, 80 * MS, 60))
    noise = random.integers(-20_000, 20_000, 60)
    own = cut(signature, ends + noise + offset_ms * MS, begin[0], 60 - end[0])
    found = align_sequences(own, cut(signature, ends, begin[1], 60 - end[1]))
    assert found is not None
    assert found.shift == begin[0] - begin[1]
    assert found.spread_ns < 50_000
    assert not found.doubt


def test_sequence_numbers_decide():
    ends = np.arange(4) * MS
    own = CollectiveSequence([(0,)] * 3, ends[:3], [7, 8, 9])
    assert align_sequences(own, CollectiveSequence([(0,)] * 4, ends, [5, 6, 7, 8])) == Alignment(
        2, 0, 2 * MS
    )


def test_sequences_without_common_collectives():
    ends = np.arange(4) * MS
    assert (
        align_sequences(CollectiveSequence([(0,)] * 4, ends), CollectiveSequence([(1,)] * 4, ends))
        is None
    )


def test_a_different_time_is_implausible():
    random = np.random.default_rng(1)
    one, other = (np.cumsum(random.integers(MS, 900 * MS, 40)) for _ in range(2))
    found = align_sequences(
        CollectiveSequence([(0,)] * 40, one), CollectiveSequence([(0,)] * 40, other)
    )
    assert found is not None
    assert "vary by" in found.doubt
    later = align_sequences(
        CollectiveSequence([(0,)] * 40, one), CollectiveSequence([(0,)] * 40, one + 10**12)
    )
    assert later is not None
    assert "1,000 s apart" in later.doubt
