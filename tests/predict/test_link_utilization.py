"""Utilization of links and the split of the time of collectives, from known times."""

from __future__ import annotations

import numpy as np
import pytest

from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringTable
from augury.core.trace.trace import Events, RankFacts, Steps, Streams, Trace
from augury.predict.link_utilization import (
    SLICES,
    time_of_collectives,
    utilization_over_step,
)
from tests.costs.test_links import wire_of

STEP = 24_000_000


def trace() -> Trace:
    """Two ranks, one step of 24 ms; in its second half an all-reduce, to which rank 1 comes 3 ms
    late."""
    start = np.array([12_000_000, 15_000_000])
    same = np.zeros(2, dtype=np.int64)
    return Trace(
        events=Events(
            kind=same + OpKind.ALL_REDUCE,
            rank=np.array([0, 1]),
            stream=np.array([0, 1]),
            name=same,
            start_ns=start,
            dur_ns=STEP - start,
            arrival_ns=start,
            step=same + 1,
            phase=same + Phase.BACKWARD,
            layer=same,
            size_bytes=same + 1000,
            group=same,
            sequence=same,
            cause=same + NONE,
            parent=same + NONE,
        ),
        streams=Streams(kind=same + StreamKind.COMMUNICATION, rank=np.array([0, 1]), name=same),
        steps=Steps(
            rank=np.array([0, 1]),
            step=same + 1,
            start_ns=same,
            end_ns=same + STEP,
            state=same + StepState.TIMED,
            cpu_ns=same + NONE,
            delay_ns=same + NONE,
            helper_cpu_ns=same + NONE,
        ),
        strings=StringTable.of([""]),
        ranks=[RankFacts(rank=rank, host=f"h{rank}") for rank in (0, 1)],
        world_size=2,
        groups=[[0, 1]],
    )


WIRE = wire_of([(0, 1, 1000, 15_000_000, 21_000_000), (1, 0, 1000, 15_000_000, 24_000_000)])


def test_a_link_is_busy_when_something_is_on_its_way() -> None:
    use = utilization_over_step(WIRE, trace())
    assert set(use) == {(0, 1), (1, 0)}
    # A slice is a millisecond.
    assert len(use[0, 1]) == SLICES
    assert use[0, 1] == pytest.approx([0] * 15 + [100] * 6 + [0] * 3)
    assert use[1, 0] == pytest.approx([0] * 15 + [100] * 9)


def test_the_time_of_collectives_is_split_in_three() -> None:
    spent = time_of_collectives(WIRE, trace())
    assert spent is not None
    assert spent.total_ns == 12_000_000 + 9_000_000
    assert spent.waiting_for_ranks_pct == pytest.approx(100 * 3 / 21)
    assert spent.on_the_way_pct == pytest.approx(100 * (9 + 6) / 21)
    assert spent.processors_pct == pytest.approx(100 * 3 / 21)


def test_without_messages_nothing_is_said() -> None:
    empty = WIRE.evolve(messages=WIRE.messages.empty())
    assert utilization_over_step(empty, trace()) == {}
    assert time_of_collectives(empty, trace()) is None
