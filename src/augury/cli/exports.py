"""Writing a Timeline in the format that a file's suffix names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from augury.cli.progress import working
from augury.core.errors import UsageError
from augury.core.files import ensure_writable

if TYPE_CHECKING:
    from augury.core.timeline import Timeline
    from augury.report.perfetto import Written


def check_target(path: Path, suffixes: tuple[str, ...], *, force: bool) -> None:
    """Before the work, so that none of it is lost."""
    if not path.name.endswith(suffixes):
        raise UsageError(
            f"{path} does not say which format to write",
            remedy=f"let its name end in {' or '.join(suffixes)}",
        )
    ensure_writable(path, force=force)


def write_timeline(
    timeline: Timeline, path: Path, *, force: bool, max_events: int, title: str
) -> Written:
    from augury.report.perfetto import write_perfetto

    with working(f"writing {path}"):
        return write_perfetto(timeline, path, force=force, max_events=max_events, title=title)


def write_table(timeline: Timeline, path: Path, *, force: bool) -> None:
    from augury.report.table import write_parquet

    with working(f"writing {path}"):
        write_parquet(timeline, path, force=force)


def describe(path: Path, written: Written) -> list[str]:
    """What the user is told about a timeline file."""
    from augury.core.units import format_ns

    lines = [f"wrote {path}: {written.num_events:,} events; open it at ui.perfetto.dev"]
    if written.cut_at_ns is not None:
        lines.append(
            f"cut at {format_ns(written.cut_at_ns)}: {written.num_ops_left_out:,} operations"
            " start later and are left out (raise --max-events)"
        )
    if written.num_flows_left_out:
        lines.append(f"{written.num_flows_left_out:,} arrows between tracks are left out")
    return lines
