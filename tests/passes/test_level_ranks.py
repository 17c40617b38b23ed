"""Levelling of slow ranks: also what calibration measured on a slow processor."""

from __future__ import annotations

import pytest

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import RATE_ONE
from augury.passes.protocol import Scene
from augury.passes.removals.level_ranks import LEVEL_RANKS, SlowRanks

SLOW_RANK, SLOWER = 1, 2.5
TRANSFER_RATE = 0.75


def levelled_rates(rates: list[float], slow: SlowRanks) -> tuple[list[float], list[float]]:
    """Returns the rates of compute and of communication of each rank after levelling."""
    builder = GraphBuilder()
    for index, rate in enumerate(rates):
        rank = builder.rank()
        thread = builder.resource("main thread", rank=rank)
        stream = builder.resource("group 0", rank=rank, kind=ResourceKind.COMMUNICATION)
        builder.interfere(victim=thread, aggressor=stream, rate=rate)
        builder.interfere(victim=stream, aggressor=thread, rate=TRANSFER_RATE)
        work_ns = round(1_000_000 * (SLOWER if index == SLOW_RANK else 1))
        for step in range(4):
            kinds = (OpKind.FORWARD, OpKind.BACKWARD)
            for kind in kinds:
                builder.op(
                    "work", kind=kind, rank=rank, resource=thread, work_ns=work_ns, step=step
                )
    changed = LEVEL_RANKS.apply(Scene.recorded(builder.build()), slow).scene.graph
    found = (changed.interference.rate / RATE_ONE).tolist()
    return found[::2], found[1::2]


def test_a_calibration_of_a_slow_processor_is_levelled_on_all_ranks() -> None:
    slow = SlowRanks((SLOW_RANK,), ("compute",), slow_processors=(SLOW_RANK,))
    compute, transfer = levelled_rates([0.6, 0.6, 0.6], slow)
    assert compute == pytest.approx([1 - 0.4 / SLOWER] * 3, abs=1e-3)
    assert transfer == pytest.approx([1 - 0.25 / SLOWER] * 3, abs=1e-3)


def test_rates_that_were_found_for_each_rank_stay_on_the_others() -> None:
    slow = SlowRanks((SLOW_RANK,), ("compute",), slow_processors=(SLOW_RANK,))
    compute, _ = levelled_rates([0.9, 0.6, 0.8], slow)
    assert compute == pytest.approx([0.9, 1 - 0.4 / SLOWER, 0.8], abs=1e-3)


def test_more_work_on_an_equal_processor_leaves_the_rates_of_others() -> None:
    compute, transfer = levelled_rates([0.6] * 3, SlowRanks((SLOW_RANK,), ("compute",)))
    assert compute[::2] == pytest.approx([0.6, 0.6], abs=1e-3)
    assert transfer == pytest.approx([TRANSFER_RATE] * 3, abs=1e-3)
