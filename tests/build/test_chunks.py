from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.collectives.chunks import capped_chunks, even_chunks
from augury.build.collectives.placement import Placement, place
from augury.build.pipeline_order import PipelineSchedule, cut_stages, stage_tasks
from augury.schedule.order_parts import fill_buckets

sizes = st.lists(st.integers(0, 1_000), min_size=1, max_size=30)


@given(size=st.integers(0, 10**12), parts=st.integers(1, 100))
@settings(deadline=None)
def test_even_chunks_differ_by_a_byte(size, parts):
    chunks = even_chunks(size, parts)
    assert sum(chunks) == size
    assert len(chunks) == parts
    assert max(chunks) - min(chunks) <= 1


@given(size=st.integers(0, 10**6), cap=st.integers(1, 10**5))
@settings(deadline=None)
def test_capped_chunks_fill_up(size, cap):
    if size // cap > 10_000:
        return
    chunks = capped_chunks(size, cap)
    assert sum(chunks) == size
    assert all(chunk == cap for chunk in chunks[:-1])
    assert chunks[-1] <= cap


@given(sizes=sizes, cap=st.integers(0, 2_000))
@settings(deadline=None)
def test_buckets_close_at_the_cap(sizes, cap):
    buckets = fill_buckets(sizes, [cap])
    assert [position for bucket in buckets for position in bucket] == list(range(len(sizes)))
    for bucket in buckets[:-1]:
        assert sum(sizes[i] for i in bucket) >= cap
    for bucket in buckets:
        # The bucket closed as early as possible: without its last gradient it was below the cap.
        assert len(bucket) == 1 or sum(sizes[i] for i in bucket[:-1]) < cap


@given(sizes=sizes, num_servers=st.integers(1, 5), placement=st.sampled_from(Placement))
@settings(deadline=None)
def test_servers_get_like_shares(sizes, num_servers, placement):
    homes = place(sizes, num_servers=num_servers, partition_bytes=100, placement=placement)
    load = [0] * num_servers
    for size, home in zip(sizes, homes, strict=True):
        for server, part in zip(home, capped_chunks(size, 100), strict=True):
            load[server] += part
    assert sum(load) == sum(sizes)
    if placement is Placement.BALANCED:
        assert max(load) - min(load) <= 100


@given(
    schedule=st.sampled_from([PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B]),
    num_stages=st.integers(1, 6),
    num_micro_batches=st.integers(1, 9),
)
@settings(deadline=None)
def test_every_stage_does_every_micro_batch_once(schedule, num_stages, num_micro_batches):
    for stage in range(num_stages):
        tasks = stage_tasks(
            schedule, stage=stage, num_stages=num_stages, num_micro_batches=num_micro_batches
        )
        assert len(tasks) == len(set(tasks)) == 2 * num_micro_batches
        held = highest = 0
        for task in tasks:
            held += 1 if task.is_forward else -1
            highest = max(highest, held)
            assert held >= 0
        if schedule is PipelineSchedule.ONE_F_ONE_B:
            assert highest == min(num_stages - stage, num_micro_batches)


@given(times=st.lists(st.integers(0, 1_000), min_size=1, max_size=20), data=st.data())
@settings(deadline=None)
def test_stages_cover_all_layers(times, data):
    num_stages = data.draw(st.integers(1, len(times)))
    stages = cut_stages(times, num_stages)
    assert [i for stage in stages for i in stage] == list(range(len(times)))
    assert all(len(stage) for stage in stages)


def test_equal_layers_make_equal_stages():
    assert cut_stages([7] * 12, 4) == [range(0, 3), range(3, 6), range(6, 9), range(9, 12)]
