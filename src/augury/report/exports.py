"""Writes a Timeline in the format that a file's suffix names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.core.files import ensure_writable
from augury.report.formats import (
    DEFAULT_MAX_EVENTS,
    PAGE_SUFFIXES,
    TABLE_SUFFIXES,
    TIMELINE_SUFFIXES,
)

if TYPE_CHECKING:
    from augury.core.timeline import Timeline
    from augury.report.page.run_page import WrittenPage
    from augury.report.perfetto import Written

    WrittenFile = Written | WrittenPage | None
    """Counts of a timeline or a page; None for a table."""


def check_target(path: Path, suffixes: tuple[str, ...], *, force: bool) -> None:
    """Checks a target before the work that it is for, so that no work is lost."""
    if not path.name.endswith(suffixes):
        raise UsageError(
            f"the suffix of {path} names no format",
            remedy=f"let its name end in {' or '.join(suffixes)}",
        )
    ensure_writable(path, force=force)


def check_targets(*targets: tuple[Path | None, tuple[str, ...]], force: bool) -> None:
    """Checks those targets that are not None, each with its suffixes."""
    for path, suffixes in targets:
        if path is not None:
            check_target(path, suffixes, force=force)


def check_export(path: Path, *, force: bool) -> None:
    check_target(path, TIMELINE_SUFFIXES + TABLE_SUFFIXES, force=force)


def check_report(path: Path, *, force: bool) -> None:
    """Checks the target of a report: a page, or what ``check_export`` accepts."""
    check_target(path, PAGE_SUFFIXES + TIMELINE_SUFFIXES + TABLE_SUFFIXES, force=force)


def is_page(path: Path) -> bool:
    return path.name.endswith(PAGE_SUFFIXES)


def write_export(
    timeline: Timeline,
    path: Path,
    *,
    force: bool = False,
    max_events: int = DEFAULT_MAX_EVENTS,
    title: str = "",
) -> Written | None:
    """Writes a timeline (.json, .json.gz) or a table (.parquet); returns what a timeline holds."""
    check_export(path, force=force)
    if path.name.endswith(TABLE_SUFFIXES):
        from augury.report.table import write_parquet

        write_parquet(timeline, path, force=force)
        return None
    from augury.report.perfetto import write_perfetto

    return write_perfetto(timeline, path, force=force, max_events=max_events, title=title)


def describe(path: Path, num_ops: int, written: WrittenFile) -> list[str]:
    """Lines for the user about a written file."""
    from augury.core.units import format_bytes, format_ns
    from augury.report.perfetto import Written

    if written is None:
        return [f"wrote {path}: one row for each of {num_ops:,} operations"]
    if not isinstance(written, Written):
        size = format_bytes(written.size_bytes)
        return [f"wrote {path}: one page of {size}; open it in a browser"]
    lines = [f"wrote {path}: {written.num_events:,} events; open it at ui.perfetto.dev"]
    if written.cut_at_ns is not None:
        lines.append(
            f"cut at {format_ns(written.cut_at_ns)}: {written.num_ops_left_out:,} operations"
            " start later and are left out (raise --max-events)"
        )
    if written.num_flows_left_out:
        lines.append(f"{written.num_flows_left_out:,} arrows between tracks are left out")
    return lines
