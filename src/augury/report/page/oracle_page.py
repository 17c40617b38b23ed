"""The page about parallel strategies: ``augury oracle ... --page oracle.html``."""

from __future__ import annotations

from pathlib import Path

from augury.core.results.oracle import OracleResult
from augury.core.units import format_bytes
from augury.report.oracle import find_row, time_words, verdict_lines, with_axes
from augury.report.page.document import write_document
from augury.report.page.sections.infeasible import infeasible_section
from augury.report.page.sections.strategies import fastest_table, metric_sections, strategy_section
from augury.report.page.sections.warnings import warning_section
from augury.report.page.tables import KeyFigure, Section, SummaryContent, summary_of
from augury.report.phrases import sentence
from augury.report.safe_text import safe


def write_oracle_page(result: OracleResult, path: Path, *, force: bool = False) -> int:
    """Returns the size of the page in bytes."""
    found = [
        _summary(result),
        *metric_sections(result),
        strategy_section(result),
        infeasible_section(result),
        warning_section([], result.warnings),
    ]
    sections = [one for one in found if one is not None]
    return write_document(f"{result.model} on {result.cluster}", sections, path, force=force)


def _summary(result: OracleResult) -> Section:
    first, *others = verdict_lines(result)
    return summary_of(
        SummaryContent(
            verdict=sentence(first),
            notes=[
                *(sentence(safe(one.strip())) for one in others),
                sentence(f"Constants: {safe(result.constants)}"),
                *(sentence(safe(one)) for one in result.notes),
            ],
            figures=_figures(result),
            tables=[fastest_table(result)] if result.fastest else [],
        )
    )


def _figures(result: OracleResult) -> list[KeyFigure]:
    figures = [
        KeyFigure(
            "Model",
            f"{result.num_parameters / 1e6:.1f} M",
            f"parameters in {result.num_layers} layers",
        ),
        KeyFigure(
            "One sample",
            time_words(result.sample_s),
            f"on one {safe(result.device)} ({result.precision})",
        ),
        KeyFigure("Memory limit", format_bytes(result.memory_limit_bytes), "per device"),
    ]
    best = result.recommended
    row = None if best is None else find_row(result, best.strategy, best.devices)
    if best is None or row is None:
        return figures
    low, high = row.interval_s
    chosen = [
        KeyFigure("Recommended", safe(with_axes(row)), f"on {best.devices:,} devices"),
        KeyFigure(
            "Step",
            time_words(row.step_s),
            f"90 % interval {time_words(low)} to {time_words(high)}",
        ),
        KeyFigure("Samples per second", f"{best.samples_per_s:,.0f}"),
        KeyFigure("Memory", format_bytes(row.memory_bytes), "per device"),
    ]
    return [*chosen, *figures]
