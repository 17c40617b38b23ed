"""The base of all answers of the Python interface: their text, HTML and JSON representations."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TextIO

from augury.report.as_json import encode
from augury.report.notebook import as_html

if TYPE_CHECKING:
    import polars


class RunAnswer(ABC):
    """A result with representations for terminals, notebooks and JSON. Fields of the result can be
    read from the answer: ``answer.predicted_step_ns``."""

    result: Any

    @abstractmethod
    def render(self, file: TextIO) -> None:
        """Writes the result as text."""

    def to_json(self) -> str:
        """The same document as ``--json`` of the verb."""
        return encode(self.result)

    @property
    def tables(self) -> list[str]:
        """Names of the tables that ``frame`` returns."""
        from augury.report.frames import table_names

        return table_names(self.result)

    def frame(self, table: str) -> polars.DataFrame:
        """A list of the result as a polars frame: ``answer.frame("ranks")``."""
        from augury.report.frames import table_frame

        return table_frame(self.result, table)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "result":
            raise AttributeError(name)
        return getattr(self.result, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.result.__struct_fields__})

    def __str__(self) -> str:
        file = io.StringIO()
        self.render(file)
        return file.getvalue()

    def _repr_html_(self) -> str:
        return as_html(str(self))
