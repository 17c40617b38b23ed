"""``augury demo``: the whole loop on a real training; or a replay of a made-up run."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.errors import AuguryError, UsageError
from augury.core.tested_versions import TESTED
from augury.report.exports import describe

if TYPE_CHECKING:
    from augury.api import ReplayAnswer
    from augury.core.graph.graph import Graph

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
    """Record a real training of two processes, replay it, plan, follow the plan, compare."""
    is_real = not made_up and find_spec("torch") is not None
    if not (is_real or made_up):
        print(
            "augury: PyTorch is not installed here, so nothing real can be recorded; a made-up run"
            f" is replayed. To install it: {sys.executable} -m pip install"
            f" 'torch=={TESTED['torch'][-1]}.*'",
            file=sys.stderr,
        )
    _prepare(out, force=force)
    import_numpy()
    if is_real:
        _whole_loop(out, force=force, json=json)
    else:
        _replay_made_up(out, force=force, json=json)


def _whole_loop(out: Path, *, force: bool, json: bool) -> None:
    from augury.cli.demo_loop import introduction, open_demo

    demo = open_demo(out, force=force)
    if not json:
        say(*introduction(demo), "")
    answer, told = _replayed(demo.record(), out, force=force)
    if not json:
        answer.render(sys.stdout)
        say("", *told, "", "Which order of gradients would be better?", "")
    plans = demo.make_plan()
    if not json:
        from augury.report.schedule import render_schedule

        render_schedule(plans, sys.stdout, name=demo.run.name)
        if plans.plan is None:
            say("", "No plan was written: none can pay here, so the loop ends.")
            next_command("whatif", demo.run, "--bandwidth", "0.1x")
            return
        say("", "The same training once more, as planned:", "")
    found = demo.follow_plan() if plans.plan is not None else None
    if json:
        from augury.report.as_json import encode_document

        print(
            encode_document(
                run=str(demo.run),
                timeline=str(out / "timeline.json"),
                result=answer.result,
                plan=plans.plan,
                schedule=plans,
                planned_run=str(demo.planned_run) if found is not None else None,
                diff=found,
            )
        )
        return
    from augury.report.diff import render_diff

    assert found is not None
    render_diff(found, sys.stdout, before=demo.run.name, after=demo.planned_run.name)
    next_command("whatif", demo.run, "--bandwidth", "0.1x")


def _replay_made_up(out: Path, *, force: bool, json: bool) -> None:
    graph, source = _made_up(out, force=force)
    answer, told = _replayed(source, out, force=force)
    if json:
        from augury.report.as_json import encode_document

        print(
            encode_document(
                graph=str(source), timeline=str(out / "timeline.json"), result=answer.result
            )
        )
        return
    say(*_of_made_up(graph), "")
    answer.render(sys.stdout)
    say("", *_where_to_look(), *told)
    next_command("replay", source, "--json")


def _replayed(source: Path, out: Path, *, force: bool) -> tuple[ReplayAnswer, list[str]]:
    """The replay, and lines about the timeline that was written."""
    from augury import api

    answer = api.open(source, progress=working).replay()
    path = out / "timeline.json"
    written = answer.write(path, force=force)
    return answer, describe(path, answer.result.num_ops, written)


def _made_up(out: Path, *, force: bool) -> tuple[Graph, Path]:
    from augury.build.synthetic.layers import ModelSize, conv_layers
    from augury.build.synthetic.training_run import SyntheticJob, synthesize
    from augury.core.graph.graph_file import save_graph

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


def _of_made_up(graph: Graph) -> list[str]:
    return [
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
