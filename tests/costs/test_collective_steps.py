"""Steps of all-reduces move every byte, and depend only on earlier steps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.errors import UsageError
from augury.core.gloo_segments import segments
from augury.costs.collective_steps import ALGORITHMS, halving_doubling, ring, tree

MIB = 1 << 20

sizes = st.integers(1, 40 * MIB).map(lambda words: 4 * (words // 4 + 1))


@given(sizes, st.integers(2, 9))
def test_a_ring_sends_every_segment_on_but_the_own_one(size_bytes: int, num_ranks: int) -> None:
    sends = ring(size_bytes, num_ranks)
    # Adding up, all but a rank's last chunk leave it, and all chunks travel from rank to rank.
    for reduces in (True, False):
        half = [send for send in sends if send.reduces == reduces]
        assert sum(send.size_bytes for send in half) == (num_ranks - 1) * size_bytes
        assert all(send.dst == (send.src - 1) % num_ranks for send in half)
        assert max(send.size_bytes for send in half) <= MIB


@given(st.sampled_from(sorted(ALGORITHMS)), sizes, st.sampled_from([2, 4, 8]))
def test_nothing_waits_for_what_comes_later_or_for_others(
    name: str, size_bytes: int, num_ranks: int
) -> None:
    sends = ALGORITHMS[name](size_bytes, num_ranks)
    for number, send in enumerate(sends):
        assert send.src != send.dst
        assert send.size_bytes > 0
        assert all(i < number and sends[i].dst == send.src for i in send.has)
        assert all(i < number and sends[i].dst == send.dst for i in send.room)


def test_segments_as_gloo_cuts_them() -> None:
    assert segments(16 * MIB, 2, 4) == (8, MIB)
    assert segments(100, 2, 4) == (2, 28)
    assert segments(5 * MIB, 4, 4) == (2, 5 * MIB // 8)
    lengths = [send.size_bytes for send in ring(100, 2) if send.src == 0]
    assert lengths == [28, 16, 28, 28]


def test_two_segments_are_in_flight_at_a_time() -> None:
    sends = [send for send in ring(16 * MIB, 2) if send.src == 0 and send.reduces]
    assert [len(send.has) for send in sends[:3]] == [0, 0, 1]


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 16])
def test_halving_sends_as_much_as_a_ring_in_fewer_rounds(num_ranks: int) -> None:
    size_bytes = num_ranks * MIB
    own = [send for send in halving_doubling(size_bytes, num_ranks) if send.src == 0]
    assert sum(send.size_bytes for send in own) == 2 * (num_ranks - 1) * MIB
    assert len(own) == 2 * (num_ranks.bit_length() - 1)


def test_halving_needs_a_power_of_two() -> None:
    with pytest.raises(UsageError, match="power of two"):
        halving_doubling(100, 3)


@pytest.mark.parametrize("num_ranks", [2, 3, 7])
def test_a_tree_brings_all_to_the_first_rank_and_back(num_ranks: int) -> None:
    sends = tree(8 * MIB, num_ranks)
    up = Counter(send.src for send in sends if send.reduces)
    down = Counter(send.dst for send in sends if not send.reduces)
    assert set(up) == set(down) == set(range(1, num_ranks))
    assert sum(send.size_bytes for send in sends) == 2 * (num_ranks - 1) * 8 * MIB
