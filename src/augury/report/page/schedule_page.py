"""The page about communication policies: ``augury schedule RUN --page schedule.html``."""

from __future__ import annotations

from pathlib import Path

from augury.core.results.schedule import ScheduleResult
from augury.core.units import format_bytes, format_count, format_ns, format_percent
from augury.report.page.document import write_document
from augury.report.page.sections.pieces import piece_section
from augury.report.page.sections.policies import policy_section
from augury.report.page.sections.warnings import warning_section
from augury.report.page.tables import KeyFigure, Section, SummaryContent, summary_of
from augury.report.phrases import gain_words, interval_words, sentence
from augury.report.safe_text import safe
from augury.report.schedule import verdict_lines


def write_schedule_page(
    result: ScheduleResult, path: Path, *, name: str, force: bool = False
) -> int:
    """Returns the size of the page in bytes."""
    found = [
        _summary(result),
        policy_section(result),
        piece_section(result),
        warning_section(result.ledger, result.warnings),
    ]
    sections = [one for one in found if one is not None]
    return write_document(f"{name}: schedule", sections, path, force=force)


def _summary(result: ScheduleResult) -> Section:
    verdict = verdict_lines(result)[0]
    return summary_of(SummaryContent(verdict=sentence(verdict), figures=_figures(result)))


def _figures(result: ScheduleResult) -> list[KeyFigure]:
    best = next(one for one in result.policies if one.policy == result.best)
    interval = interval_words(best.interval_ns) if best.interval_ns else ""
    how = "recorded order, replayed" if result.baseline == "recorded" else safe(result.baseline)
    rate = f"{1e3 / result.ns_per_byte:.0f} MB/s" if result.ns_per_byte else "unlimited"
    measured = result.measured_step_ns
    return [
        *([KeyFigure("Measured step", format_ns(measured))] if measured is not None else []),
        KeyFigure("Baseline", format_ns(result.baseline_step_ns), how),
        KeyFigure(f"Step with {safe(best.policy)}", format_ns(best.step_ns), interval),
        KeyFigure(
            "Gain",
            gain_words(best.gain_pct),
            f"below {format_percent(result.noise_pct)} is noise",
        ),
        KeyFigure(
            "Estimated lower bound",
            format_ns(result.bound_ns),
            f"headroom {format_percent(result.headroom_pct)}",
        ),
        KeyFigure("Compute", format_ns(result.compute_ns), "forward, backward and update"),
        KeyFigure("Communication", f"{result.ratio:.2f}x", f"of compute, at {rate}"),
        KeyFigure(
            "Gradients",
            format_bytes(result.size_bytes),
            f"{result.num_gradients:,} on {format_count(result.num_ranks, 'rank')},"
            f" {safe(result.scheme)}",
        ),
    ]
