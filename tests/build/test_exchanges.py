"""Number of concurrent exchanges of a group, from their begin and end times."""

from __future__ import annotations

import pytest

from augury.build.recorded.recorded_collectives import RecordedCollective, concurrent_transfers
from augury.core.enums import OpKind


def exchange(
    sequence: int, called: int, start: int, end: int, *, group: int = 0
) -> RecordedCollective:
    return RecordedCollective(
        kind=OpKind.ALL_REDUCE,
        name="gloo:all_reduce",
        group=group,
        sequence=sequence,
        step=1,
        size_bytes=4,
        rows={0: sequence, 1: sequence},
        arrival_ns={0: called, 1: called},
        start_ns={0: start, 1: start},
        end_ns={0: end, 1: end},
    )


@pytest.mark.parametrize(
    ("spans", "at_once"),
    [
        pytest.param([(0, 0, 100), (10, 100, 200), (20, 200, 300)], 1, id="one behind the other"),
        pytest.param([(0, 0, 100), (10, 98, 200)], 1, id="hardly beside each other"),
        pytest.param([(0, 0, 100), (10, 10, 120), (20, 100, 200)], 2, id="beside each other"),
        pytest.param([(0, 0, 100), (150, 150, 200)], 2, id="never called for meanwhile"),
        pytest.param([(0, 0, 100)], 2, id="alone"),
    ],
)
def test_number_of_concurrent_exchanges_is_found(
    spans: list[tuple[int, int, int]], at_once: int
) -> None:
    found = concurrent_transfers([exchange(n, *span) for n, span in enumerate(spans)])
    assert found == {0: at_once}


def test_groups_are_counted_separately() -> None:
    one = [exchange(0, 0, 0, 100), exchange(1, 10, 100, 200)]
    other = [exchange(0, 0, 50, 150, group=1), exchange(1, 60, 60, 160, group=1)]
    assert concurrent_transfers([*one, *other]) == {0: 1, 1: 2}
