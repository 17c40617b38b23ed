from hypothesis import given
from hypothesis import strategies as st

from augury.core.results.replay import RankResult, ResourceResult
from augury.report.selection import Alike, alike, extreme_ranks, extreme_resources, spans


def rank(number: int, predicted_ns: int) -> RankResult:
    return RankResult(
        rank=number,
        role="worker",
        host="",
        measured_step_ns=None,
        predicted_step_ns=predicted_ns,
        error_pct=None,
        peak_memory_bytes=None,
        peak_memory_at_ns=None,
        peak_memory_by_kind={},
        peak_memory_holders=[],
        peak_memory_other_bytes=0,
    )


def resource(kind: str, busy_pct: float) -> ResourceResult:
    return ResourceResult(
        name=kind,
        rank=0,
        kind=kind,
        num_ops=1,
        busy_pct=busy_pct,
        waiting_pct=0,
        idle_pct=100 - busy_pct,
    )


def test_spans() -> None:
    assert spans([0, 1, 2, 5]) == "0-2, 5"
    assert spans([3]) == "3"
    assert spans([]) == ""
    assert spans(range(0, 20, 2)) == "0, 2, +8"


@given(st.sets(st.integers(0, 60)))
def test_spans_account_for_every_number(numbers: set[int]) -> None:
    count = 0
    for part in filter(None, spans(numbers).split(", ")):
        low, _, high = part.partition("-")
        count += int(part[1:]) if part[0] == "+" else int(high or low) - int(low) + 1
    assert count == len(numbers)


def test_rows_that_look_the_same_become_one() -> None:
    groups = alike([rank(0, 5), rank(1, 6), rank(2, 5)], lambda r: r.predicted_step_ns)
    assert [[r.rank for r in group.members] for group in groups] == [[0, 2], [1]]


def test_of_many_ranks_the_extremes_are_shown_and_labelled() -> None:
    groups = [Alike(members=[rank(i, 1000 + (i * 7) % 101)]) for i in range(101)]
    shown = extreme_ranks(groups, 5)
    notes = {group.first.predicted_step_ns: group.notes for group in shown}
    assert notes == {1100: ("slowest",), 1099: ("slowest",), 1000: ("fastest",)}


def test_of_many_resources_every_kind_is_seen() -> None:
    groups = [Alike(members=[resource("compute", i)]) for i in range(50)]
    groups += [Alike(members=[resource("link", i)]) for i in range(50)]
    shown = [(g.first.kind, g.first.busy_pct) for g in extreme_resources(groups, 6)]
    assert len(shown) == 6
    assert {("compute", 49), ("compute", 0), ("link", 49), ("link", 0)} <= set(shown)
