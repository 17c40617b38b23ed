"""Lengths of the messages of gloo's collectives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.gloo_segments import segments
from augury.costs.collective_steps import ring
from augury.ingest.wire.attribution.gloo_messages import (
    all_gather_lengths,
    all_reduce_bytes,
    all_reduce_lengths,
)

MIB = 1 << 20


def test_small_sums_have_two_segments_per_rank():
    assert segments(1000, 2, 4) == (2, 252)
    assert all_reduce_lengths(1000, 2, 0).tolist() == [252, 244, 252, 252]
    assert all_reduce_lengths(1000, 2, 1).tolist() == [252, 252, 252, 244]


def test_segments_of_large_sums_are_at_most_one_mebibyte():
    assert segments(16 * MIB, 2, 4) == (8, MIB)
    assert segments(16 * MIB + 4, 2, 4) == (9, 932_068)


def test_empty_segments_are_not_sent():
    assert all_reduce_lengths(4, 4, 0).tolist() == [4]
    assert all_reduce_lengths(4, 1, 0).tolist() == []
    assert all_reduce_lengths(0, 4, 0).tolist() == []


@given(
    size=st.integers(1, 40 * MIB),
    num_ranks=st.integers(2, 9),
    element_bytes=st.sampled_from([1, 2, 4, 8]),
)
def test_every_byte_takes_two_rounds_less_one_hop_each(size: int, num_ranks: int, element_bytes):
    sent = [all_reduce_lengths(size, num_ranks, rank, element_bytes) for rank in range(num_ranks)]
    assert sum(int(lengths.sum()) for lengths in sent) == all_reduce_bytes(size, num_ranks)
    assert max(int(lengths.max()) for lengths in sent if len(lengths)) <= MIB


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("size", [4, 20, 4096, 999_996, 10_000_000, 8 * MIB, 25_557_032])
def test_the_cost_model_has_the_same_ring(size: int, num_ranks: int):
    sends = ring(size, num_ranks)
    for rank in range(num_ranks):
        own = [send.size_bytes for send in sends if send.src == rank]
        assert own == all_reduce_lengths(size, num_ranks, rank).tolist()


def test_all_gathers_pass_on_halves():
    assert all_gather_lengths(101, 3).tolist() == [50, 51, 50, 51]
    assert all_gather_lengths(1, 2).tolist() == [1]
    assert np.sum(all_gather_lengths(10, 4)) == 30
