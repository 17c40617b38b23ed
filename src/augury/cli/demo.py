"""``augury demo`` shows the whole loop on real training, or the diagnosis of a synthetic run."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from augury.cli.numpy_threads import import_numpy
from augury.cli.options import Force, Json
from augury.cli.progress import working
from augury.cli.say import next_command
from augury.core.files import make_folder
from augury.core.tested_versions import TESTED


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Write all files to this folder.")
    ] = Path("augury-demo"),
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Diagnose a synthetic run; needs no PyTorch.")
    ] = False,
    # Hidden alias of --synthetic.
    made_up: Annotated[bool, typer.Option("--made-up", hidden=True)] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Record training of two processes, diagnose it, follow a plan, compare, write a page."""
    synthetic = synthetic or made_up
    if not synthetic and find_spec("torch") is None:
        synthetic = True
        print(
            "augury: PyTorch is not installed here, so the demo cannot record training; it shows"
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
    from augury.demo.loop import DemoLoop, run_loop
    from augury.demo.narration import show_loop
    from augury.demo.network import can_have_slow_network

    loop = DemoLoop(out, force, can_have_slow_network(), working)
    if json:
        from augury.report.as_json import encode_document, fields_of

        print(encode_document(**fields_of(run_loop(loop))))
        return
    show_loop(loop, sys.stdout)
    next_command("whatif", loop.run, "--bandwidth", "0.1x")


def _show_synthetic(out: Path, *, force: bool, json: bool) -> None:
    from augury.demo.narration import show_synthetic
    from augury.demo.synthetic import diagnose_synthetic

    shown = diagnose_synthetic(out, force=force, progress=working)
    if json:
        from augury.report.as_json import encode_document

        print(
            encode_document(
                graph=str(shown.graph),
                timeline=str(shown.timeline),
                page=str(shown.page),
                result=shown.replayed.result,
                diagnosis=shown.diagnosed.result,
            )
        )
        return
    show_synthetic(shown, sys.stdout)
    next_command("replay", shown.graph, "--json")
