"""``augury run``: records a job without a change to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.options import Json
from augury.core.errors import UsageError

if TYPE_CHECKING:
    from augury.capture.summary import RunSummary


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="The job, as you start it.")
    ],
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where the record goes.")
    ] = Path("augury-run"),
    steps: Annotated[
        str,
        typer.Option(
            metavar="FIRST:LAST", help="The window, after a warm-up; several as 10:20,30:40."
        ),
    ] = "10:20",
    json: Json = False,
) -> None:
    """Record a PyTorch job: traces of a window of steps, and the time of every step."""
    from augury.capture.launcher import launch
    from augury.capture.settings import Settings, parse_windows
    from augury.capture.summary import summarize_run

    windows = parse_windows(steps)
    folder = _prepare(out)
    code = launch(command, Settings(out=str(folder), windows=windows))
    summary = summarize_run(folder)
    if json:
        from augury.report.as_json import encode_line

        # The job's own output came before it on the same stream.
        print(encode_line(exit_code=code, run=str(out), result=summary))
    else:
        _tell(summary, out)
    raise typer.Exit(code)


def _prepare(out: Path) -> Path:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty", remedy="give another --out")
    out.mkdir(parents=True, exist_ok=True)
    return out.resolve()


def _tell(summary: RunSummary, out: Path) -> None:
    """To stderr: stdout is the job's."""
    from augury.core.units import format_ns
    from augury.report.safe_text import safe

    lines = [f"augury: {len(summary.ranks)} ranks recorded in {out}"]
    for rank in summary.ranks:
        parts = [f"rank {rank.rank} on {rank.host}", f"{rank.num_steps} steps"]
        if rank.plain_step_ns is not None:
            parts.append(f"{format_ns(rank.plain_step_ns)} a step")
        if rank.recorded_step_ns is not None:
            parts.append(f"{format_ns(rank.recorded_step_ns)} while recording")
        parts += rank.traces
        lines.append("  " + ", ".join(parts))
    for anomaly in summary.ledger:
        lines.append(f"  {anomaly.severity}: {anomaly.meaning} ({anomaly.example or anomaly.name})")
        if anomaly.remedy:
            lines.append(f"    remedy: {anomaly.remedy}")
    if any(rank.traces for rank in summary.ranks):
        lines.append("open a trace at ui.perfetto.dev")
    for line in lines:
        print(safe(line, max_chars=2000), file=sys.stderr)
