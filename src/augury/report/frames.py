"""Tables of a result as polars frames: one for each list of structs in it.

A table is named by its field (``ranks``), or by two (``critical_path_summary.by_kind``). Columns
are the fields of the rows, under the names that JSON has; a dictionary becomes one column for each
key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from augury.core.errors import UsageError

if TYPE_CHECKING:
    import polars


def table_names(result: msgspec.Struct) -> list[str]:
    """Names of the tables of a result, in the order of its fields."""
    return [name for name, _, _ in _tables(result)]


def table_frame(result: msgspec.Struct, name: str) -> polars.DataFrame:
    """One table of the result; it has its columns even if it has no rows."""
    for known, kind, rows in _tables(result):
        if known == name:
            return _frame(kind, rows)
    known_names = ", ".join(table_names(result)) or "none"
    raise UsageError(f"there is no table {name!r} here", remedy=f"tables are: {known_names}")


def _tables(
    result: msgspec.Struct, prefix: str = ""
) -> Iterator[tuple[str, inspect.StructType, Sequence[msgspec.Struct]]]:
    struct = inspect.type_info(type(result))
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        value = getattr(result, field.name)
        kind = _without_none(field.type)
        if isinstance(kind, inspect.ListType) and isinstance(kind.item_type, inspect.StructType):
            yield prefix + field.name, kind.item_type, value or []
        elif isinstance(kind, inspect.StructType) and value is not None and not prefix:
            yield from _tables(value, f"{field.name}.")


def _without_none(kind: inspect.Type) -> inspect.Type:
    if isinstance(kind, inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return others[0] if len(others) == 1 else kind
    return kind


def _frame(struct: inspect.StructType, rows: Sequence[msgspec.Struct]) -> polars.DataFrame:
    import polars

    columns: dict[str, polars.Series] = {}
    for field in struct.fields:
        kind = _without_none(field.type)
        values = [msgspec.to_builtins(getattr(row, field.name)) for row in rows]
        if isinstance(kind, inspect.DictType):
            for key in sorted({str(key) for value in values for key in value or {}}):
                own = [(value or {}).get(key) for value in values]
                columns[f"{field.encode_name}.{key}"] = _series(kind.value_type, own)
        else:
            columns[field.encode_name] = _series(kind, values)
    return polars.DataFrame(columns)


def _series(kind: inspect.Type, values: list[Any]) -> polars.Series:
    import polars

    known: dict[type[inspect.Type], Any] = {
        inspect.IntType: polars.Int64,
        inspect.FloatType: polars.Float64,
        inspect.BoolType: polars.Boolean,
        inspect.StrType: polars.String,
        inspect.EnumType: polars.String,
        inspect.LiteralType: polars.String,
    }
    return polars.Series(values=values, dtype=known.get(type(_without_none(kind))), strict=False)
