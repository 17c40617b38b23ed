"""``augury demo``: the loop on a real training of two processes; or on a made-up run."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.exports import describe, write_timeline
from augury.cli.graphs import import_numpy, predicted_interval, read_recorded, replay_graph
from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import AuguryError, UsageError
from augury.report.formats import DEFAULT_MAX_EVENTS

if TYPE_CHECKING:
    from augury.core.graph import Graph

_WINDOWS = "10:20,30:40"
_NUM_STEPS = 55
_STRAGGLER = 5
_SLOWER = 1.4


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where to put the files.")
    ] = Path("augury-demo"),
    made_up: Annotated[
        bool, typer.Option("--made-up", help="Replay a made-up run; needs no PyTorch.")
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Record a real training of two processes, replay it, foretell a change."""
    is_real = not made_up and find_spec("torch") is not None
    _prepare(out, force=force)
    import_numpy()
    graph, source = _recorded(out, force=force) if is_real else _made_up(out, force=force)
    timeline = replay_graph(graph)
    written = write_timeline(
        timeline, out / "timeline.json", force=force, max_events=DEFAULT_MAX_EVENTS, title="demo"
    )
    from augury.report.summarize import summarize

    summary = summarize(timeline, interval_ns=predicted_interval(timeline))
    if json:
        from augury.report.as_json import encode_document

        key = "run" if is_real else "graph"
        print(
            encode_document(
                **{key: str(source)}, timeline=str(out / "timeline.json"), result=summary
            )
        )
        return
    from augury.report.terminal import render

    say(*(_of_recorded() if is_real else _of_made_up(graph, asked=made_up)), "")
    render(summary, sys.stdout, name=source.name)
    say("", *([] if is_real else _where_to_look()), *describe(out / "timeline.json", written))
    if is_real:
        next_command("whatif", source, "--bandwidth", "0.1x")
    else:
        next_command("replay", source, "--json")


def _recorded(out: Path, *, force: bool) -> tuple[Graph, Path]:
    from augury.capture.launcher import launch
    from augury.capture.run_folder import prepare_folder
    from augury.capture.settings import Settings, parse_windows

    folder = prepare_folder(out / "run", force=force, rank=None)
    job = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(str(Path(__file__).with_name("demo_training.py")), str(_NUM_STEPS)),
    ]
    settings = Settings(out=str(folder), windows=parse_windows(_WINDOWS), calibrate=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or torchrun warns that it sets that itself
    with working(f"training with two processes for {_NUM_STEPS} steps, recording 20"):
        code = launch(job, settings)
    if code:
        raise AuguryError(
            f"the training ended with {code}", remedy="look at its output above, or add --made-up"
        )
    return read_recorded(folder)[0], out / "run"


def _of_recorded() -> list[str]:
    return [
        f"A real training, recorded without a change to it: two processes, {_NUM_STEPS} steps, a",
        "small convolutional net, gradients averaged by DDP over loopback. The steps that were",
        "recorded are replayed, and held against those that nobody watched.",
    ]


def _made_up(out: Path, *, force: bool) -> tuple[Graph, Path]:
    from augury.build.layers import ModelSize, conv_layers
    from augury.build.synthetic import SyntheticJob, synthesize
    from augury.core.graph_file import save_graph

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
    return graph, path


def _of_made_up(graph: Graph, *, asked: bool) -> list[str]:
    missing = [] if asked else ["PyTorch is not installed here, so nothing real can be recorded."]
    return [
        *missing,
        f"A made-up run of {graph.num_ranks} ranks: buckets of gradients are all-reduced while",
        f"backward goes on, and rank {_STRAGGLER} computes {_SLOWER} times as long as the others.",
    ]


def _where_to_look() -> list[str]:
    return [
        f"Look for rank {_STRAGGLER} above: the path runs over it, and the communication of the",
        "others waits for it.",
    ]


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
