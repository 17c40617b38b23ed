from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.string_table import StringColumn, StringPool, StringTable


@given(st.lists(st.text()))
def test_a_table_gives_back_what_was_put_in(strings: list[str]):
    table = StringTable.of(strings)
    assert list(table) == strings
    assert len(table) == len(strings)
    assert table == StringTable(table.blob, table.ends)


@given(st.lists(st.text()))
def test_a_pool_numbers_equal_strings_once_in_order_of_appearance(strings: list[str]):
    pool = StringPool(strings)
    distinct = list(dict.fromkeys(strings))
    assert list(pool.table()) == distinct
    assert [pool.number(string) for string in strings] == [distinct.index(s) for s in strings]


def test_minus_one_is_no_string():
    assert StringTable.of(["a"])[-1] == ""
    assert StringTable.of([])[-1] == ""


@pytest.mark.parametrize("index", [-2, 1, 2**40])
def test_other_indices_outside_are_errors(index: int):
    with pytest.raises(IndexError):
        StringTable.of(["a"])[index]


def test_text_that_is_not_unicode_is_replaced_rather_than_refused():
    assert StringTable.of(["a\ud800b"])[0] == "a?b"
    assert StringTable(b"a\xffb", np.array([3]))[0] == "a\ufffdb"


def test_equality_sees_where_strings_end():
    assert StringTable.of(["ab", "c"]) != StringTable.of(["a", "bc"])
    assert StringTable.of(["a"]) != ["a"]
    with pytest.raises(TypeError):
        hash(StringTable.of(["a"]))


def test_a_column_numbers_equal_strings_alike():
    column = StringColumn(np.array([2, 0, 1, 2], dtype=np.int32), ["a", "b", "a"])
    assert list(column) == ["a", "a", "b", "a"]
    assert column.strings == ["a", "b"]
    assert column[2] == "b"
    assert len(column) == 4
    assert column.where("a".__eq__).tolist() == [True, True, False, True]
    assert list(column.take(np.array([2, 0]))) == ["b", "a"]


def test_strings_of_a_column_in_order_of_their_rows():
    column = StringColumn(np.array([2, 0, 2], dtype=np.int32), ["a", "unused", "c"])
    assert column.in_order() == [2, 0]
