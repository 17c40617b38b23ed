"""``augury demo`` shows the whole loop on real training, or a replay of a synthetic run."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command, say
from augury.core.files import make_folder
from augury.core.tested_versions import TESTED
from augury.report.exports import describe


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Write all files to this folder.")
    ] = Path("augury-demo"),
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Replay a synthetic run; needs no PyTorch.")
    ] = False,
    # Hidden alias of --synthetic.
    made_up: Annotated[bool, typer.Option("--made-up", hidden=True)] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Record training of two processes, replay it, make a plan, follow it, and compare."""
    synthetic = synthetic or made_up
    if not synthetic and find_spec("torch") is None:
        synthetic = True
        print(
            "augury: PyTorch is not installed here, so the demo cannot record training; it replays"
            f" a synthetic run instead. To install PyTorch: {sys.executable} -m pip install"
            f" 'torch=={TESTED['torch'][-1]}.*'",
            file=sys.stderr,
        )
    make_folder(out, force=force)
    import_numpy()
    if synthetic:
        _show_synthetic(out, force=force, json=json)
    else:
        _show_loop(out, force=force, json=json)


def _show_loop(out: Path, *, force: bool, json: bool) -> None:
    from augury.demo.loop import NUM_STEPS, DemoLoop, run_loop
    from augury.demo.network import GBIT_EACH_WAY, can_have_slow_network

    loop = DemoLoop(out, force, can_have_slow_network(), working)
    if json:
        from augury.report.as_json import encode_document, fields_of

        print(encode_document(**fields_of(run_loop(loop))))
        return
    network = f"a network of {GBIT_EACH_WAY} Gbit/s" if loop.has_slow_network else "loopback"
    say(
        f"Two processes train a small convolutional network for {NUM_STEPS} steps, with DDP over",
        f"{network}. Augury records 20 of the steps without changes to the code,",
        "replays them, and compares the prediction with the steps outside of the recording.",
        "",
    )
    loop.record()
    replayed, written = loop.replay()
    replayed.render(sys.stdout)
    say("", *describe(loop.timeline, replayed.result.num_ops, written))
    say("", "Which order of the gradients would be faster?", "")
    plans = loop.make_plan()
    plans.render(sys.stdout)
    if plans.result.plan is None:
        say("", "No plan was written, because no plan pays off here. The demo ends.")
    else:
        say("", "The same training again, with the plan:", "")
        loop.follow_plan().render(sys.stdout)
    next_command("whatif", loop.run, "--bandwidth", "0.1x")


def _show_synthetic(out: Path, *, force: bool, json: bool) -> None:
    from augury.demo.synthetic import replay_synthetic

    demo_run = replay_synthetic(out, force=force, progress=working)
    if json:
        from augury.report.as_json import encode_document

        paths = {"graph": str(demo_run.graph), "timeline": str(demo_run.timeline)}
        print(encode_document(**paths, result=demo_run.replayed.result))
        return
    say(*demo_run.introduction, "")
    demo_run.replayed.render(sys.stdout)
    say("", *demo_run.conclusion)
    next_command("replay", demo_run.graph, "--json")
