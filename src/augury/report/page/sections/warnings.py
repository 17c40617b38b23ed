"""Warnings: anomalies of the recording and of the replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from augury.core.ledger import Anomaly, Severity
from augury.report.page.tables import Section
from augury.report.safe_text import safe


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningView:
    severity: str
    name: str = ""
    meaning: str
    count: str = ""
    example: str = ""
    remedy: str = ""


def warning_section(ledger: Iterable[Anomaly], texts: Sequence[str] = ()) -> Section:
    """``texts`` are warnings that are no anomalies of a trace."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    found = [WarningView(severity="warning", meaning=safe(text)) for text in texts]
    found += [_warning(one) for one in sorted(ledger, key=lambda one: order.index(one.severity))]
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
