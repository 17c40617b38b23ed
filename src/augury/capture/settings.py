"""What the launcher tells the processes it starts: one variable of the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Steps are counted from 1; the window is from the end of ``first`` to the end of ``last``."""

    VARIABLE: ClassVar[str] = "AUGURY_RECORD"

    out: str
    first: int = 10
    last: int = 20

    def to_environment(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Settings | None:
        text = os.environ.get(cls.VARIABLE)
        return cls(**json.loads(text)) if text else None
