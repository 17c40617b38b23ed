"""The ledger of warnings: counts anomalies, so that nothing is dropped silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of anomaly: its stable slug, the number of cases, and an example of one."""

    name: str
    severity: Severity
    count: int
    meaning: str
    remedy: str = ""
    example: str = ""


class Ledger:
    """Anomalies by name. Noting one again adds to its count and keeps the first example."""

    __slots__ = ("_anomalies",)

    def __init__(self, anomalies: Iterable[Anomaly] = ()) -> None:
        self._anomalies: dict[str, Anomaly] = {}
        for anomaly in anomalies:
            self.add(anomaly)

    def note(
        self,
        name: str,
        meaning: str,
        *,
        severity: Severity = Severity.WARNING,
        count: int = 1,
        remedy: str = "",
        example: str = "",
    ) -> None:
        if count > 0:
            self.add(
                Anomaly(
                    name=name,
                    severity=severity,
                    count=count,
                    meaning=meaning,
                    remedy=remedy,
                    example=example,
                )
            )

    def merged(self, other: Ledger) -> Ledger:
        return Ledger([*self, *other])

    def add(self, anomaly: Anomaly) -> None:
        known = self._anomalies.get(anomaly.name)
        self._anomalies[anomaly.name] = (
            anomaly
            if known is None
            else msgspec.structs.replace(known, count=known.count + anomaly.count)
        )

    def __iter__(self) -> Iterator[Anomaly]:
        return iter(self._anomalies.values())

    def __len__(self) -> int:
        return len(self._anomalies)

    def __getitem__(self, name: str) -> Anomaly:
        return self._anomalies[name]

    def __contains__(self, name: object) -> bool:
        return name in self._anomalies

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self._anomalies == other._anomalies

    __hash__ = None  # type: ignore[assignment]  # it grows while work goes on
