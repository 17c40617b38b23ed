"""A table of strings addressed by number and decoded on access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4


class StringTable:
    """UTF-8 bytes and offsets, as in the file: a million names cost nothing to load."""

    __slots__ = ("_blob", "_ends")

    def __init__(self, blob: bytes, ends: NDArray[np.int64]) -> None:
        self._blob = blob
        self._ends = ends

    @classmethod
    def of(cls, strings: Iterable[str]) -> StringTable:
        encoded = [s.encode("utf-8", "replace") for s in strings]
        ends = np.cumsum([len(e) for e in encoded], dtype=np.int64)
        return cls(b"".join(encoded), ends)

    @property
    def blob(self) -> bytes:
        return self._blob

    @property
    def ends(self) -> NDArray[np.int64]:
        return self._ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        """Returns the string at ``index``; an empty one for -1, which means *none* in columns."""
        if index == -1:
            return ""
        if not 0 <= index < len(self._ends):
            raise IndexError(index)
        begin = int(self._ends[index - 1]) if index else 0
        return self._blob[begin : int(self._ends[index])].decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StringTable)
            and self._blob == other._blob
            and np.array_equal(self._ends, other._ends)
        )

    __hash__ = None  # type: ignore[assignment]


class StringColumn:
    """A string for each row of a table: the number of one of the distinct ``strings``."""

    __slots__ = ("number", "strings")

    def __init__(self, number: I4, strings: list[str]) -> None:
        """Equal strings get one number."""
        places: dict[str, int] = {}
        own = [places.setdefault(string, len(places)) for string in strings]
        is_distinct = len(places) == len(strings)
        self.number: I4 = number if is_distinct else np.array(own, dtype=np.int32)[number]
        self.strings = strings if is_distinct else list(places)

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, row: int) -> str:
        return self.strings[int(self.number[row])]

    def __iter__(self) -> Iterator[str]:
        return map(self.strings.__getitem__, self.number.tolist())

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> StringColumn:
        return StringColumn(self.number[rows], self.strings)

    def where(self, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Returns the rows whose strings pass the test, which sees each distinct string once."""
        passed = np.fromiter(map(test, self.strings), dtype=bool, count=len(self.strings))
        found: NDArray[np.bool_] = passed[self.number]
        return found

    def in_order(self) -> list[int]:
        """Returns the numbers that occur, in order of their first row."""
        first = np.full(len(self.strings), -1, dtype=np.int64)
        first[self.number[::-1]] = np.arange(len(self.number))[::-1]
        occurs = np.flatnonzero(first >= 0)
        found: list[int] = occurs[np.argsort(first[occurs])].tolist()
        return found


class StringPool:
    """Collects strings while a graph is built; equal strings share one number."""

    __slots__ = ("_numbers",)

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        for string in strings:
            self.number(string)

    def number(self, string: str) -> int:
        return self._numbers.setdefault(string, len(self._numbers))

    def in_order(self) -> list[str]:
        """Returns the strings by their numbers."""
        return list(self._numbers)

    def table(self) -> StringTable:
        return StringTable.of(self._numbers)
