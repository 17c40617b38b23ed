"""Findings of a diagnosis, each with the step before and after the fix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.results.diagnosis import Diagnosis, Finding, Place
from augury.core.run_page import RunPage
from augury.core.units import format_bytes, format_percent
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableView,
    bar_with_interval,
    ns_cell,
)
from augury.report.phrases import (
    capitalized,
    figure_words,
    gain_words,
    interval_words,
    kinds_by_reason,
)
from augury.report.safe_text import safe
from augury.report.selection import spans


@dataclass(frozen=True, kw_only=True)
class FindingView:
    number: int
    kind: str
    title: str
    confidence: str
    gain: str
    gain_interval: str
    before_after: TableView | None
    where: str
    ranks: str
    step: str
    evidence: list[tuple[str, str]]
    action: str
    command: str
    applied_by: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    findings: list[FindingView]
    noise: str
    not_examined: list[tuple[str, str]]


def findings_section(page: RunPage) -> Section | None:
    diagnosis = page.diagnosis
    if diagnosis is None:
        return None
    shown_steps = set(np.unique(page.timeline.graph.ops.step).tolist())
    views = [
        _view(number, one, diagnosis, shown_steps)
        for number, one in enumerate(diagnosis.findings, 1)
    ]
    content = Findings(
        findings=views,
        noise=format_percent(diagnosis.noise_pct),
        not_examined=kinds_by_reason(diagnosis.not_examined),
    )
    return Section(
        id="findings",
        title="Findings",
        template="findings.html",
        content=content,
        tables=[view.before_after for view in views if view.before_after],
    )


def _view(number: int, one: Finding, diagnosis: Diagnosis, shown_steps: set[int]) -> FindingView:
    """``shown_steps`` are those that the timeline has."""
    interval = one.gain_interval_pct
    return FindingView(
        number=number,
        kind=safe(one.kind),
        title=capitalized(safe(one.title)),
        confidence=one.confidence,
        gain="" if one.gain_pct is None else gain_words(one.gain_pct),
        gain_interval=""
        if interval is None
        else f"90 % interval {format_percent(interval[0], signed=True)} to"
        f" {format_percent(interval[1], signed=True)}",
        before_after=_before_after(number, one, diagnosis),
        where=_where(one.where),
        ranks=",".join(map(str, one.where.ranks[:64])),
        step=next((str(step) for step in one.where.steps if step in shown_steps), ""),
        evidence=[(safe(figure.name), figure_words(figure)) for figure in one.evidence],
        action=safe(one.action),
        command=safe(one.command),
        applied_by=one.applied_by,
    )


def _before_after(number: int, one: Finding, diagnosis: Diagnosis) -> TableView | None:
    if one.predicted_step_ns is None:
        return None
    now_ns, then_ns = diagnosis.replayed_step_ns, one.predicted_step_ns
    scale = 100 / max(1, now_ns, then_ns, one.interval_ns[1] if one.interval_ns else 0)
    return TableView(
        id=f"finding-{number}-step",
        caption="Step before and after the fix",
        columns=[
            Column(""),
            Column("step", is_number=True),
            Column("", is_bar=True),
        ],
        rows=[
            [
                Cell("now, replayed"),
                ns_cell(now_ns),
                bar_with_interval("total", now_ns, None, scale),
            ],
            [
                Cell("with the fix"),
                ns_cell(then_ns),
                bar_with_interval("after", then_ns, one.interval_ns, scale),
            ],
        ],
        can_sort=False,
        note="" if one.interval_ns is None else f"With the fix: {interval_words(one.interval_ns)}.",
    )


def _where(place: Place) -> str:
    parts = [
        *([_named("rank", len(place.ranks), spans(place.ranks))] if place.ranks else []),
        *([_named("host", len(place.hosts), _some(place.hosts))] if place.hosts else []),
        *([_named("step", len(place.steps), spans(place.steps))] if place.steps else []),
        *([_named("layer", len(place.layers), _some(place.layers))] if place.layers else []),
        *([format_bytes(place.size_bytes)] if place.size_bytes is not None else []),
    ]
    return "; ".join(parts) or "all of the run"


def _named(noun: str, number: int, names: str) -> str:
    return f"{noun}{'' if number == 1 else 's'} {names}"


def _some(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(safe(name, max_chars=80) for name in names[:limit])
    return shown + (f", +{len(names) - limit:,}" if len(names) > limit else "")
