"""``augury import``: traces that others recorded, as a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augury.cli.options import Force, Json, MaxBytes
from augury.cli.say import next_command, say
from augury.core.errors import UsageError

if TYPE_CHECKING:
    from augury.core.trace.trace import Trace


def import_(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE...",
            help="Traces of torch's profiler, one a rank.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN", help="Where the run goes.")],
    clocks: Annotated[
        str, typer.Option(metavar="auto|collectives", help="What tells how clocks differ.")
    ] = "auto",
    force: Force = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Read traces of all ranks: one clock, collectives matched, oddities counted."""
    from augury.core.trace.trace_file import write_trace
    from augury.ingest.imported import import_traces
    from augury.predict.opened_run import run_cap

    _refuse_runs(traces)
    if clocks not in ("auto", "collectives"):
        raise UsageError(f"{clocks!r} tells no clock", remedy="choose auto or collectives")
    _prepare(out, force=force)
    trace = import_traces(
        traces,
        clocks="auto" if clocks == "auto" else "collectives",
        max_bytes=run_cap(max_bytes),
    )
    out.mkdir(parents=True, exist_ok=True)
    write_trace(trace, out)
    result = summary(trace)
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(run=str(out), result=result))
        return
    say(
        f"{out}  {result['num_ranks']} of {result['world_size']} ranks,"
        f" {result['num_events']:,} events, {result['num_steps']} steps",
        f"{result['num_matched']} collectives matched, {result['num_unmatched']} events unmatched",
    )
    for anomaly in trace.ledger:
        say(f"{anomaly.severity}: {anomaly.meaning} ({anomaly.count:,} x) {anomaly.example}")
    next_command("replay", out)


def summary(trace: Trace) -> dict[str, Any]:
    import numpy as np

    events = trace.events
    communicates = events.group >= 0
    matched = communicates & (events.sequence >= 0)
    named = np.stack([events.group[matched], events.sequence[matched]], axis=1)
    return {
        "num_ranks": len(trace.ranks),
        "world_size": trace.world_size,
        "num_events": len(events),
        "num_steps": len(np.unique(trace.steps.step)),
        "num_matched": len(np.unique(named, axis=0)),
        "num_unmatched": int((communicates & ~matched).sum()),
        "clocks": [{"rank": facts.rank, "clock": facts.clock} for facts in trace.ranks],
        "ledger": list(trace.ledger),
    }


def _refuse_runs(traces: list[Path]) -> None:
    from augury.ingest.formats.rank_record import is_rank_record

    for path in traces:
        inside = sorted(path.glob("rank-*.json")) if path.is_dir() else [path]
        if any(map(is_rank_record, inside)) or (path / "run.json").is_file():
            run = path if path.is_dir() else path.parent
            raise UsageError(
                f"{path} was written by Augury: it needs no import",
                remedy=f"use it as it is: augury replay {shlex.quote(str(run))}",
            )


def _prepare(out: Path, *, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder", remedy="give another --out")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(f"{out} exists and is not empty", remedy="add --force to replace it")
    if any(out.glob("rank-*.json")):
        # Whoever opened it would read those records again.
        raise UsageError(f"{out} holds what `augury run` recorded", remedy="give another --out")
