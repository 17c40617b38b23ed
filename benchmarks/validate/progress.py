"""Tracks which cases of a suite are done at this revision, so that an interrupted run continues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.validate.checks import Check
from benchmarks.validate.revision import Revision

STAMP = "done.json"


@dataclass(slots=True, kw_only=True)
class Progress:
    """Saved measurements of one suite.

    A measured case has a stamp in its own folder; checks that run jobs of their own have one under
    ``checks/``. A case is not started if, taking as long as the longest case so far, it would end
    after ``deadline_s`` of ``time.monotonic``.
    """

    folder: Path
    revision: Revision
    can_measure: bool = True
    deadline_s: float = float("inf")
    postponed: list[str] = field(default_factory=list)
    """Cases for which no time was left."""
    _longest_s: float = 0.0

    def is_done(self, case: str) -> bool:
        return self.revision.is_same_code(self.revision_of(case))

    def revision_of(self, case: str) -> Revision:
        """Revision at which a case was measured."""
        return _revision(_read(self.folder / case / STAMP))

    def took_s(self, cases: Iterable[str]) -> float:
        """Seconds that measuring took, over all runs that contributed."""
        stamps = [self.folder / case / STAMP for case in cases]
        stamps += sorted((self.folder / "checks").glob("*.json"))
        return float(sum(_read(path).get("took_s", 0.0) for path in stamps))

    def measure(self, case: str, run: Callable[[], None]) -> None:
        """Runs and stamps a case, unless no time is left."""
        if self._is_late(case, self._longest_s):
            return
        began_s = time.monotonic()
        run()
        self._longest_s = max(self._longest_s, time.monotonic() - began_s)
        self._write(self.folder / case / STAMP, began_s)

    def checks(self, name: str, run: Callable[[], Iterator[Check]]) -> Iterator[Check]:
        """Runs checks that need jobs of their own, or reads them from their file where they are
        done."""
        path = self.folder / "checks" / f"{name.replace('/', '-')}.json"
        kept = _read(path)
        is_kept = bool(kept) and self.revision.is_same_code(_revision(kept))
        if not is_kept and self.can_measure:
            if self._is_late(name):
                return
            began_s = time.monotonic()
            found = [replace(check, **self._stamp()) for check in run()]
            if all(check.trouble is None for check in found):
                self._write(path, began_s, checks=[check.as_json() for check in found])
            yield from found
            return
        for check in kept.get("checks", []):
            yield Check.from_json(check)

    def forget(self, cases: Iterable[str]) -> None:
        """Makes the next run measure these cases, and all checks, again."""
        for case in cases:
            (self.folder / case / STAMP).unlink(missing_ok=True)
        for path in (self.folder / "checks").glob("*.json"):
            path.unlink()

    def _is_late(self, case: str, takes_s: float = 0.0) -> bool:
        if time.monotonic() + takes_s < self.deadline_s:
            return False
        self.postponed.append(case)
        return True

    def _stamp(self) -> dict[str, Any]:
        return {"commit": self.revision.commit, "is_dirty": self.revision.is_dirty}

    def _write(self, path: Path, began_s: float, **more: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        took_s = round(time.monotonic() - began_s, 1)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self.revision) | {"took_s": took_s} | more, indent=1))
        partial.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _revision(stamp: dict[str, Any]) -> Revision:
    return Revision(
        commit=stamp.get("commit"),
        is_dirty=stamp.get("is_dirty", False),
        digest=stamp.get("digest", ""),
    )
