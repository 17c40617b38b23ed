"""Each rival's published rule, on problems small enough to follow by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.plan.plan import Order, Piece
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate import evaluate, step_ns
from augury.schedule.lower_bound import lower_bound
from augury.schedule.order_parts import MEBIBYTE, by_priority, cut, gather, whole
from augury.schedule.policies.bytescheduler import ByteScheduler
from augury.schedule.policies.ddp import Ddp, DdpBest
from augury.schedule.policies.dear import Dear
from augury.schedule.policies.fifo import Fifo
from augury.schedule.policies.mg_wfbp import MgWfbp
from augury.schedule.policies.p3 import P3
from augury.schedule.policies.prophet import Prophet
from tests.schedule.problems import problem_of, problems

MILLION = 1_000_000


def _gradients(order: Order, *ops: OpKind) -> list[list[int]]:
    """Gradients of each piece."""
    return [
        [part.gradient for part in piece.slices]
        for piece in order.pieces
        if not ops or piece.op in ops
    ]


def _places(pieces: tuple[Piece, ...]) -> list[tuple[int, int]]:
    return [(part.gradient, part.offset_bytes) for piece in pieces for part in piece.slices]


def _both_ways(problem: Problem) -> Problem:
    return problem_of(
        [gradient.size_bytes for gradient in problem.gradients],
        [gradient.release_ns for gradient in problem.gradients],
        scheme=Scheme.PARAMETER_SERVER,
    )


def test_slices_end_between_items():
    problem = problem_of([10], [0])
    assert [part.size_bytes for part in cut(problem, 0, 4)] == [4, 4, 2]
    assert [part.offset_bytes for part in cut(problem, 0, 4)] == [0, 4, 8]
    assert len(list(cut(problem, 0, 0))) == 10  # an item is never cut


def test_messages_are_filled_up_to_their_size():
    problem = problem_of([3, 3, 9, 1], [0, 0, 0, 0])
    gathered = gather((whole(problem, place) for place in range(4)), 6)
    assert [[part.gradient for part in message] for message in gathered] == [[0, 1], [2], [3]]


def test_fifo_sends_as_released_and_of_one_moment_the_last_layer_first():
    order = Fifo().compile(problem_of([1, 2, 3, 4], [30, 20, 20, 10]))
    assert _gradients(order) == [[3], [2], [1], [0]]
    assert order.has_barrier


def test_fifo_with_a_server_waits_layer_by_layer_and_pulls_what_it_pushed():
    order = Fifo().compile(_both_ways(problem_of([1, 2, 3], [30, 20, 10])))
    assert not order.has_barrier
    assert _gradients(order, OpKind.PUSH) == _gradients(order, OpKind.PULL) == [[2], [1], [0]]


def test_ddp_fills_a_small_bucket_and_then_large_ones():
    halves = [MEBIBYTE // 2] * 60
    order = Ddp().compile(problem_of(halves, range(60, 0, -1)))
    assert [len(bucket) for bucket in _gradients(order)] == [2, 50, 8]
    assert _gradients(order)[0] == [59, 58]
    assert order.has_barrier


def test_the_best_bucket_size_is_one_bucket_where_messages_are_dear_and_many_where_they_are_free():
    sizes, releases = [MEBIBYTE] * 8, [MEBIBYTE * nth for nth in range(8, 0, -1)]
    dear = problem_of(sizes, releases, overhead_ns=100 * MEBIBYTE)
    assert len(DdpBest().compile(dear).pieces) == 1
    assert len(DdpBest().compile(problem_of(sizes, releases)).pieces) == 8


@settings(max_examples=30)
@given(problem=problems())
def test_no_single_bucket_size_of_the_list_is_better_than_the_best(problem: Problem):
    policy = DdpBest(sizes_bytes=(1, 16, 64, 1 << 16, 1 << 22))
    best_ns = step_ns(problem, policy.compile(problem))
    for size_bytes in policy.sizes_bytes:
        other = Ddp(bucket_caps_bytes=(size_bytes,)).compile(problem)
        assert best_ns <= step_ns(problem, other)
    assert step_ns(problem, Ddp(bucket_caps_bytes=policy.caps_bytes(problem)).compile(problem)) == (
        best_ns
    )


def test_p3_lets_the_urgent_gradient_pass_at_the_next_slice():
    order = P3(slice_bytes=4).compile(problem_of([6, 20], [10, 0]))
    assert _places(order.pieces) == [(1, 0), (1, 4), (1, 8), (0, 0), (0, 4), (1, 12), (1, 16)]
    assert not order.has_barrier


def test_p3_sends_a_slice_when_the_one_before_has_arrived():
    problem = problem_of([4, 8], [0, 0], latency_ns=5)
    order = P3(slice_bytes=4).compile(problem)
    assert evaluate(problem, order).start_ns.tolist() == [0, 9, 18]


def test_p3_cuts_at_forty_thousand_parameters():
    order = P3().compile(problem_of([400_000], [0]))
    assert [piece.size_bytes for piece in order.pieces] == [160_000, 160_000, 80_000]


def test_a_server_answers_in_order_of_readiness():
    problem = problem_of([8, 1], [0, 0], scheme=Scheme.PARAMETER_SERVER, server_ns_per_byte=10.0)
    order = P3().compile(problem)
    assert _gradients(order, OpKind.PUSH) == [[0], [1]]
    assert _gradients(order, OpKind.PULL) == [[1], [0]]  # answered at 19, the large one at 88


@settings(max_examples=60)
@given(problem=problems(scales=st.just(1)))
def test_priority_is_optimal_where_messages_cost_nothing_beyond_their_bytes(problem: Problem):
    """Slices of one nanosecond: as good as preemption, and that is what the bound is made of."""
    problem = problem_of(
        [gradient.size_bytes for gradient in problem.gradients],
        [gradient.release_ns for gradient in problem.gradients],
        needs_ns=[gradient.need_ns for gradient in problem.gradients],
        forward_ns=problem.forward_ns,
    )
    order = P3(slice_bytes=1).compile(problem)
    # The bound is rounded down.
    assert lower_bound(problem) <= step_ns(problem, order) <= lower_bound(problem) + 1


@pytest.mark.parametrize("scheme", Scheme)
def test_bytescheduler_is_as_good_as_the_best_of_its_grid(scheme: Scheme):
    problem = problem_of(
        [MILLION, 30 * MILLION, 9 * MILLION],
        [40 * MILLION, 20 * MILLION, 0],
        scheme=scheme,
        overhead_ns=400_000,
        latency_ns=900_000,
    )
    tuned = ByteScheduler()
    credits_bytes = (
        tuned.reduce_credits_bytes if scheme is Scheme.ALL_REDUCE else tuned.push_credits_bytes
    )
    assert 4 * MILLION in tuned.partitions_bytes
    assert 16 * MILLION in credits_bytes
    best_ns = step_ns(problem, tuned.compile(problem))
    assert len(tuned.partitions_bytes) * len(credits_bytes) == 15
    for partition_bytes in tuned.partitions_bytes:
        for credit_bytes in credits_bytes:
            fixed = ByteScheduler(
                partitions_bytes=(partition_bytes,),
                push_credits_bytes=(credit_bytes,),
                reduce_credits_bytes=(credit_bytes,),
            )
            assert best_ns <= step_ns(problem, fixed.compile(problem))


def test_bytescheduler_sends_while_it_has_credit_and_lets_it_go_below_zero():
    """Three of five bytes: with credit of six the second still leaves, the third has to wait."""
    problem = problem_of([15], [0], latency_ns=100)
    order = ByteScheduler(partitions_bytes=(5,), reduce_credits_bytes=(6,)).compile(problem)
    assert evaluate(problem, order).start_ns.tolist() == [0, 5, 105]


@settings(max_examples=40)
@given(problem=problems(), window_bytes=st.sampled_from((1, 30, 200, None)))
def test_a_queue_always_sends_the_most_urgent_available(problem: Problem, window_bytes: int | None):
    messages = [(whole(problem, place),) for place in range(len(problem.gradients))]
    pieces = by_priority(problem, messages, window_bytes=window_bytes)
    order = Order(policy="", pieces=pieces, has_barrier=False, window_bytes=window_bytes)
    starts_ns = evaluate(problem, order).start_ns
    first = [nth for nth, piece in enumerate(pieces) if piece.op is not OpKind.PULL]
    for nth in first:
        for later in first[nth + 1 :]:
            passed = pieces[later].slices[0].gradient
            if passed < pieces[nth].slices[0].gradient:
                assert problem.gradients[passed].release_ns > starts_ns[nth]


def test_mg_wfbp_merges_what_comes_before_the_transfer_could_start_or_within_alpha_of_it():
    problem = problem_of([7, 1, 1, 5, 5], [300, 115, 60, 9, 0], overhead_ns=10)
    # 4 and 3 within alpha: together from 9 to 29. 2 starts at 60, 1 is too late for it (55 > 10).
    assert _gradients(MgWfbp().compile(problem)) == [[4, 3], [2], [1], [0]]
    busy = problem_of([7, 1, 1, 100], [300, 115, 60, 0], overhead_ns=10)
    # 3 holds the link until 110: 2 waits anyhow, and 1 comes within alpha of that.
    assert _gradients(MgWfbp().compile(busy)) == [[3], [2, 1], [0]]


def test_mg_wfbp_does_not_merge_beyond_alpha():
    problem = problem_of([5, 5], [10, 0], overhead_ns=10)
    assert _gradients(MgWfbp().compile(problem)) == [[1], [0]]
    assert MgWfbp().compile(problem).has_barrier


def test_dear_scatters_as_released_and_gathers_as_needed():
    order = Dear(group_bytes=4).compile(problem_of([2, 2, 2, 2, 4], [50, 40, 30, 20, 10]))
    assert _gradients(order, OpKind.REDUCE_SCATTER) == [[4], [3, 2], [1, 0]]
    assert _gradients(order, OpKind.ALL_GATHER) == [[1, 0], [3, 2], [4]]
    assert [piece.after for piece in order.pieces] == [-1, -1, -1, 2, 1, 0]
    assert not order.has_barrier


def test_dear_takes_pushes_and_pulls_for_the_halves_of_an_all_reduce():
    problem = _both_ways(problem_of([2, 2, 4], [50, 40, 10]))
    order = Dear(group_bytes=4).compile(problem)
    assert _gradients(order, OpKind.PUSH) == [[2], [1, 0]]
    assert _gradients(order, OpKind.PULL) == [[1, 0], [2]]


def test_prophet_finds_bursts_by_gaps_of_twice_the_mean():
    problem = problem_of([1] * 6, [200, 199, 101, 100, 1, 0])
    assert Prophet().bursts(problem) == [[5, 4], [3, 2], [1, 0]]
    assert Prophet().bursts(problem_of([1] * 3, [20, 10, 0])) == [[2, 1, 0]]
    assert Prophet().bursts(problem_of([1], [0])) == [[0]]


def test_prophet_sends_what_fits_the_gap_and_keeps_the_rest_below_the_next_burst():
    """Gaps of 100 ns carry 100 bytes: 4 (60) fits, 5 does not; then 2 and 3, of 5 the first part
    does not fit beside them; at last all by priority."""
    problem = problem_of([10, 10, 30, 30, 60, 50], [202, 201, 101, 101, 0, 0], overhead_ns=7)
    order = Prophet().compile(problem)
    assert _gradients(order) == [[4], [2, 3], [0, 1], [5]]
    assert [piece.not_before_ns for piece in order.pieces] == [0, 101, 202, 202]
    assert not order.has_barrier


def test_prophet_sends_parts_of_a_tensor_that_is_too_large_for_a_gap():
    problem = problem_of([10, 300], [100, 0])
    order = Prophet(partition_bytes=40, gap_factor=0.5).compile(problem)
    assert _places(order.pieces) == [
        (1, 0),
        (1, 40),
        (0, 0),
        *((1, at) for at in range(80, 300, 40)),
    ]
    assert [len(piece.slices) for piece in order.pieces] == [2, 1, 1, 1, 1, 1, 1, 1]


def test_prophet_blocks_the_line_where_its_head_does_not_fit():
    """5 bytes would fit the gap, but stand behind 200 more urgent ones."""
    problem = problem_of([10, 200, 5], [100, 0, 0])
    order = Prophet(gap_factor=1.0).compile(problem)
    assert _gradients(order)[0] == [0]


def test_prophet_schedules_pushes_only():
    problem = _both_ways(problem_of([10, 10, 30, 30], [101, 100, 1, 0]))
    order = Prophet().compile(problem)
    assert _gradients(order, OpKind.PULL) == _gradients(order, OpKind.PUSH)
    assert [piece.not_before_ns for piece in order.pieces if piece.op is OpKind.PULL] == [0, 0]
