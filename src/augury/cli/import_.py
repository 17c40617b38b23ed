"""``augury import`` reads traces of other profilers as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from augury.cli.options import Force, Json, MaxBytes
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.units import format_count


def import_(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE...",
            help="Traces of PyTorch's profiler, one per rank, or folders of them.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="RUN", help="Write the run to this folder.")
    ],
    clocks: Annotated[
        str,
        typer.Option(
            metavar="auto|collectives",
            help="Source of the clock offsets between ranks.",
        ),
    ] = "auto",
    force: Force = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Read traces of all ranks: align clocks, match collectives, count anomalies."""
    from augury.ingest.import_run import import_run

    with working("reading traces"):
        result = import_run(traces, out, clocks=clocks, max_bytes=max_bytes, force=force)
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(run=str(out), result=result))
        return
    say(
        f"{out}: {result.num_ranks} of {format_count(result.world_size, 'rank')},"
        f" {format_count(result.num_events, 'event')}, {format_count(result.num_steps, 'step')}",
        f"{format_count(result.num_matched, 'collective')} matched across ranks,"
        f" {format_count(result.num_unmatched, 'event')} unmatched",
    )
    for anomaly in result.ledger:
        times = format_count(anomaly.count, "time")
        example = f": {anomaly.example}" if anomaly.example else ""
        say(f"{anomaly.severity}: {anomaly.meaning} ({times}){example}")
    next_command("replay", out)
