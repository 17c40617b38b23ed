"""Warnings: anomalies of the recording and of the replay."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.ledger import Anomaly, Severity
from augury.core.run_page import RunPage
from augury.report.page.tables import (
    Section,
)
from augury.report.safe_text import safe


@dataclass(frozen=True, slots=True)
class WarningView:
    severity: str
    name: str
    meaning: str
    count: str
    example: str
    remedy: str


def warning_section(page: RunPage) -> Section:
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    ledger = list(page.diagnosis.ledger) if page.diagnosis else list(page.replay.ledger)
    found = [_warning(one) for one in sorted(ledger, key=lambda one: order.index(one.severity))]
    return Section(id="warnings", title="Warnings", template="warnings.html", content=found)


def _warning(one: Anomaly) -> WarningView:
    return WarningView(
        severity=one.severity.value,
        name=safe(one.name),
        meaning=safe(one.meaning),
        count=f"{one.count:,} times" if one.count > 1 else "",
        example=safe(one.example),
        remedy=safe(one.remedy),
    )
