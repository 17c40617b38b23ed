"""``build/validate.json``: a run replaces the rows that it measured and keeps those of other
suites."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.validate.checks import Check
from benchmarks.validate.gates import broken
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.suite import Suite, is_wanted

SCHEMA_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of one suite: of all its cases, or of the requested ones."""

    suite: Suite
    only: str | None
    rows: Sequence[Row]
    checks: Sequence[Check]
    troubles: Sequence[str] = ()
    took_s: float = 0.0

    @property
    def broken(self) -> list[str]:
        found = broken(self.rows, self.checks, summarize(self.rows), self.suite.gates)
        return [f"{self.suite.name}: {words}" for words in found]


@dataclass(slots=True)
class Document:
    """Content of the file. Gates and summaries cover all rows of a suite, whichever run measured
    them; each row has the commit that measured it."""

    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    broken_gates: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    took_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Reads the document; it is empty if there is no file or its version differs."""
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            return cls()
        if found.get("schema_version") != SCHEMA_VERSION:
            return cls()
        return cls(
            rows=[Row.from_json(row) for row in found["rows"]],
            checks=[Check.from_json(check) for check in found["checks"]],
            summary=found["summary"],
            broken_gates=found["broken_gates"],
            troubles=found["troubles"],
            took_s=found["took_s"],
        )

    def replace(self, outcome: Outcome) -> None:
        """Replaces rows and checks of that suite only; with a pattern, only those that match it."""
        suite, name = outcome.suite, outcome.suite.name
        self.rows = [
            row for row in self.rows if row.suite != name or not is_wanted(row.case, outcome.only)
        ] + list(outcome.rows)
        renewed = {check.case for check in outcome.checks}
        self.checks = [
            check
            for check in self.checks
            if check.suite != name or (outcome.only is not None and check.case not in renewed)
        ] + list(outcome.checks)
        own_rows = [row for row in self.rows if row.suite == name]
        own_checks = [check for check in self.checks if check.suite == name]
        whole = Outcome(suite=suite, only=None, rows=own_rows, checks=own_checks)
        self.summary[name] = summarize(own_rows)
        self.broken_gates = _others(self.broken_gates, name) + whole.broken
        self.troubles = _others(self.troubles, name) + list(outcome.troubles)
        self.took_s[name] = round(outcome.took_s, 1)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": {"system": platform.platform(), "cores": os.cpu_count()},
            "took_s": self.took_s,
            "rows": [row.as_json() for row in self.rows],
            "checks": [check.as_json() for check in self.checks],
            "summary": self.summary,
            "broken_gates": self.broken_gates,
            "troubles": self.troubles,
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        partial.replace(path)


def _others(lines: list[str], suite: str) -> list[str]:
    return [line for line in lines if not line.startswith(f"{suite}: ")]
