"""Tables of flat, read-only numpy columns: the memory layout of a Graph and of its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
I4 = NDArray[np.int32]
U1 = NDArray[np.uint8]


def column(dtype: str) -> Any:
    """Declares a column of a Table; ``dtype`` is its stored type, little-endian."""
    return field(metadata={"dtype": np.dtype(dtype)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Base class of tables. Columns are converted once, on construction, and are read-only."""

    def __post_init__(self) -> None:
        for name, dtype in self.schema():
            values = np.ascontiguousarray(getattr(self, name), dtype=dtype).view()
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @classmethod
    def schema(cls) -> Iterator[tuple[str, np.dtype[Any]]]:
        for entry in fields(cls):
            yield entry.name, entry.metadata["dtype"]

    @classmethod
    def empty(cls) -> Self:
        return cls(**{name: np.empty(0, dtype) for name, dtype in cls.schema()})

    @classmethod
    def joined(cls, tables: Iterable[Self]) -> Self:
        """Returns the rows of all tables, one table after the other."""
        parts = [*tables] or [cls.empty()]
        return cls(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name, _ in cls.schema()
            }
        )

    def columns(self) -> Iterator[tuple[str, NDArray[Any]]]:
        for name, _ in self.schema():
            yield name, getattr(self, name)

    def __len__(self) -> int:
        return len(next(values for _, values in self.columns()))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            np.array_equal(mine, getattr(other, name)) for name, mine in self.columns()
        )

    __hash__ = None  # type: ignore[assignment]
