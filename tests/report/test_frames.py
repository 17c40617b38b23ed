"""Tables of results as polars frames."""

from __future__ import annotations

import msgspec
import polars
import pytest

from augury import api
from augury.core.errors import UsageError
from augury.core.ledger import Anomaly, Severity
from augury.core.results.comparison import PartChange
from augury.core.results.replay import RankResult
from augury.report.frames import table_frame, table_names


class Inner(msgspec.Struct):
    changes: list[PartChange]


class Result(msgspec.Struct):
    step_ns: int
    ranks: list[RankResult]
    ledger: list[Anomaly] | None
    inner: Inner
    other: Inner | None = None
    names: list[str] = []


def rank(number: int, **memory: int) -> RankResult:
    return RankResult(
        rank=number,
        role="worker",
        host="one",
        measured_step_ns=None,
        predicted_step_ns=7,
        error_pct=None,
        peak_memory_bytes=None,
        peak_memory_at_ns=None,
        peak_memory_by_kind=memory,
        peak_memory_holders=[],
        peak_memory_other_bytes=0,
    )


RESULT = Result(
    step_ns=1,
    ranks=[rank(0, parameter=3), rank(1, gradient=4)],
    ledger=[Anomaly(name="a", severity=Severity.WARNING, count=2, meaning="b")],
    inner=Inner(changes=[]),
)


def test_lists_of_structs_are_tables() -> None:
    assert table_names(RESULT) == ["ranks", "ledger", "inner.changes"]


def test_rows_keep_values_and_a_dictionary_becomes_columns() -> None:
    frame = table_frame(RESULT, "ranks")
    assert frame["rank"].to_list() == [0, 1]
    assert frame["predicted_step_ns"].to_list() == [7, 7]
    assert frame["peak_memory_by_kind.parameter"].to_list() == [3, None]
    assert frame["peak_memory_by_kind.gradient"].to_list() == [None, 4]
    # A column without values has the type of its field.
    assert frame.schema["measured_step_ns"] == polars.Int64
    assert frame.schema["error_pct"] == polars.Float64
    assert table_frame(RESULT, "ledger")["severity"].to_list() == ["warning"]


def test_an_empty_table_has_its_columns() -> None:
    frame = table_frame(RESULT, "inner.changes")
    assert (frame.height, frame.columns) == (0, list(PartChange.__struct_fields__))
    assert frame.schema["is_certain"] == polars.Boolean


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no table 'steps'") as refused:
        table_frame(RESULT, "steps")
    assert refused.value.remedy == "tables are: ranks, ledger, inner.changes"


def test_every_table_of_an_answer_has_the_rows_of_its_json() -> None:
    run = api.open(api.synth(ranks=4))
    for answer in (run.replay(), run.whatif(bandwidth="0.5x"), run.schedule(policy="ddp")):
        document = msgspec.json.decode(answer.to_json())
        assert answer.tables
        for name in answer.tables:
            rows = document
            for field in name.split("."):
                rows = rows[field]
            frame = answer.frame(name)
            assert frame.height == len(rows or [])
            for column in set(frame.columns) & {key for row in rows or [] for key in row}:
                if not isinstance(rows[0][column], list | dict):
                    assert frame[column].to_list() == [row[column] for row in rows]
