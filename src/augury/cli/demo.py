"""``augury demo``: the whole loop on a made-up run, to look around in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.exports import describe, write_timeline
from augury.cli.graphs import import_numpy, replay_graph
from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import AuguryError, UsageError
from augury.report.formats import DEFAULT_MAX_EVENTS

_STRAGGLER = 5
_SLOWER = 1.4


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where to put the files.")
    ] = Path("augury-demo"),
    force: Force = False,
    json: Json = False,
) -> None:
    """Show all this on a made-up run with a slow rank."""
    _prepare(out, force=force)
    import_numpy()
    from augury.build.layers import ModelSize, conv_layers
    from augury.build.synthetic import SyntheticJob, synthesize
    from augury.core.graph_file import save_graph
    from augury.report.summarize import summarize

    path = out / "run.augury"
    with working("making up a run"):
        job = SyntheticJob(
            layers=conv_layers(ModelSize(num_layers=24)),
            jitter=0.02,
            num_steps=3,
            stragglers=((_STRAGGLER, _SLOWER),),
        )
        graph = synthesize(job)
        save_graph(graph, path, force=force)
    timeline = replay_graph(graph)
    written = write_timeline(
        timeline, out / "timeline.json", force=force, max_events=DEFAULT_MAX_EVENTS, title="demo"
    )
    summary = summarize(timeline)
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(graph=str(path), timeline=str(out / "timeline.json"), result=summary))
        return
    from augury.report.terminal import render

    say(
        f"A made-up run of {graph.num_ranks} ranks on {job.cluster.num_hosts} hosts: buckets of"
        " gradients are all-reduced while",
        f"backward goes on, and rank {_STRAGGLER} computes {_SLOWER} times as long as the others.",
        "",
    )
    render(summary, sys.stdout, name=path.name)
    say(
        "",
        f"Look for rank {_STRAGGLER} above: the path runs over it, and the communication of the",
        "others waits for it.",
        *describe(out / "timeline.json", written),
    )
    next_command("replay", path, "--json")


def _prepare(out: Path, *, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a directory", remedy="name another with --out")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(
            f"{out} is not empty", remedy="name another with --out, or add --force to replace files"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AuguryError(
            f"cannot make {out}: {error.strerror}", remedy="name another with --out"
        ) from error
