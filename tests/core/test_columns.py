from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from augury.core.columns import Table
from augury.core.graph.graph import Carries, Edges, Ops, Ranks


def test_columns_are_converted_on_entry():
    ranks = Ranks(role=[0, 1], host=np.array([5, 6], dtype=np.int64))
    assert ranks.role.dtype == np.dtype("<u1")
    assert ranks.host.dtype == np.dtype("<i4")
    assert ranks.host.flags.c_contiguous


def test_a_strided_column_is_made_contiguous():
    assert Ranks(role=[0, 0], host=np.arange(4, dtype="<i4")[::2]).host.flags.c_contiguous


def test_columns_cannot_be_written():
    carries = Carries(src=[0], dst=[1])
    with pytest.raises(ValueError, match="read-only"):
        carries.src[0] = 5


def test_columns_cannot_be_replaced():
    carries = Carries(src=[0], dst=[1])
    with pytest.raises(FrozenInstanceError):
        carries.src = np.array([1])  # type: ignore[misc]


def test_the_array_that_came_in_stays_writable():
    source = np.array([0], dtype="<i4")
    Carries(src=source, dst=[1])
    source[0] = 7


def test_columns_are_keywords_and_all_needed():
    with pytest.raises(TypeError):
        Carries(src=[0])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Carries([0], [1])  # type: ignore[misc]


def test_schema_and_columns_go_in_the_order_of_the_file():
    names = [name for name, _ in Ops.schema()]
    assert names[:4] == ["kind", "rank", "resource", "work_ns"]
    assert [name for name, _ in Ops.empty().columns()] == names


def test_an_empty_table_has_no_rows():
    assert len(Ops.empty()) == 0
    assert len(Carries(src=[1, 2], dst=[3, 4])) == 2


def test_equality_is_by_type_and_content():
    assert Carries(src=[0], dst=[1]) == Carries(src=[0], dst=[1])
    assert Carries(src=[0], dst=[1]) != Carries(src=[0], dst=[2])
    assert Carries(src=[0], dst=[1]) != Edges(first=[0], dst=[1])
    assert Carries(src=[0], dst=[1]) != "carries"
    with pytest.raises(TypeError):
        hash(Carries.empty())


@pytest.mark.parametrize("table", Table.__subclasses__())
def test_every_column_of_every_table_says_how_it_is_stored(table: type[Table]):
    for name, dtype in table.schema():
        assert dtype.str in {"|u1", "<i4", "<i8"}, name
