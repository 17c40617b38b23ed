"""``augury run``: records a job without a change to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from augury.cli.ending import Ending
from augury.cli.options import Force, Json
from augury.core.errors import UsageError

if TYPE_CHECKING:
    from augury.capture.settings import Settings

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
"""Options behind the first word of the job are the job's."""


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="The job, as you start it; or a Python script with its arguments.",
        ),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where the record goes.")
    ] = Path("augury-run"),
    steps: Annotated[
        str,
        typer.Option(
            metavar="FIRST:LAST",
            help="Windows, as 10:20 or 10:20,30:40; auto spreads short ones over the job.",
        ),
    ] = "auto",
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Profile only these, as 0,3-5; the others' steps count."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Also measure the network, once the windows are closed."),
    ] = False,
    wire: Annotated[
        bool,
        typer.Option("--wire", help="Also record what goes over TCP, message by message."),
    ] = False,
    wire_events: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1 << 8,
            max=1 << 26,
            help="With --wire: how many calls a process keeps, 64 bytes each.",
        ),
    ] = 1 << 20,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also train as this plan says, made by `augury schedule -o`."
        ),
    ] = None,
    no_trial: Annotated[
        bool,
        typer.Option(
            "--no-trial", help="With --plan: follow it without a trial against stock DDP."
        ),
    ] = False,
    repeat_baseline: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=20,
            help="Run the job N times without the plan and N times with it, in turns.",
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", metavar="MODULE", help="Run a Python module; its arguments behind --."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Record a PyTorch job: traces of windows of steps, and the time of every step."""
    from augury.capture.launcher.in_process import is_python, is_rank
    from augury.capture.launcher.launch import as_program, launch
    from augury.capture.launcher.run_folder import prepare_folder
    from augury.capture.process_identity import own_rank
    from augury.capture.settings import Settings, parse_windows
    from augury.capture.wire.preload import become_wired, wire_environment
    from augury.core.units import parse_ranks

    windows, chosen = parse_windows(steps), parse_ranks(ranks)
    _announce(plan, has_trial=not no_trial)
    words = _job(command or [], module)
    rank = own_rank()[0] if is_rank() else None
    becomes_job = rank is not None and is_python(words)
    if becomes_job and Settings.VARIABLE in os.environ:
        raise UsageError(
            "this process is recorded already", remedy="leave out one of the two `augury run`"
        )
    settings = Settings(
        out=os.path.realpath(out),
        windows=windows,
        calibrate=calibrate,
        ranks=chosen,
        wire=wire,
        wire_events=wire_events,
    )
    if repeat_baseline is not None:
        from augury.cli.repeats import run_in_turns

        if plan is None:
            raise UsageError("--repeat-baseline compares a plan with none", remedy="give --plan")
        if becomes_job:
            raise UsageError(
                "a rank cannot repeat its job",
                remedy="start the launcher within: augury run ... -- torchrun ... train.py",
            )
        wire_environment(settings)
        code = run_in_turns(
            as_program(words),
            settings,
            out=out,
            plan=plan,
            number=repeat_baseline,
            force=force,
            as_json=json,
        )
        raise typer.Exit(code)
    if becomes_job:
        become_wired(settings)  # before the folder is there: this may begin again
    else:
        wire_environment(settings)  # says what is missing before anything is done
    folder = prepare_folder(out, force=force, rank=rank)
    ending = Ending(out=out, folder=folder, rank=rank, as_json=json, wire=wire)
    if becomes_job:
        _run_here(words, settings, ending)
    ending.exit_code = launch(as_program(words), settings)
    summary = ending.tell()
    raise typer.Exit(ending.exit_code or int(summary.is_empty))


def _job(command: list[str], module: str | None) -> list[str]:
    words = command if module is None else ["-m", module, *command]
    if not words or words == ["-m"]:
        raise UsageError(
            "there is nothing to run", remedy="for example: augury run -- torchrun ... train.py"
        )
    if words[0].endswith(".py") and not os.path.exists(words[0]):
        raise UsageError(f"there is no script {words[0]!r}", remedy="check its name")
    return words


def _announce(plan: Path | None, *, has_trial: bool) -> None:
    """To the job's processes, which read it themselves; what is wrong with it is said now."""
    from augury.core.plan.plan_file import load_plan
    from augury.runtime.torch.injection import TRIAL_VARIABLE, VARIABLE

    if plan is None:
        if not has_trial:
            raise UsageError("there is no plan to follow", remedy="name one with --plan")
        return
    load_plan(plan)
    os.environ[VARIABLE] = os.path.realpath(plan)
    os.environ[TRIAL_VARIABLE] = str(int(has_trial))


def _run_here(words: list[str], settings: Settings, ending: Ending) -> NoReturn:
    """A launcher has started this process as one rank: it becomes the job's."""
    import atexit

    from augury.capture.launcher.in_process import (
        arrange_here,
        exit_code_of,
        run_python,
        tell_uncaught,
    )
    from augury.runtime.torch.injection import arrange as arrange_plan
    from augury.runtime.torch.injection import tell_refusals

    if ending.rank == 0:
        # Called after what the recorder does at the end, being registered before it.
        atexit.register(ending.tell_unless_forked, os.getpid())
    if settings.wire:
        atexit.register(_pack_unless_forked, os.getpid(), ending)
    arrange_here(settings)
    tell_refusals()
    arrange_plan()
    try:
        run_python(words)
    except SystemExit as end:
        ending.exit_code = exit_code_of(end)
        raise
    except Exception as error:
        ending.exit_code = 1
        tell_uncaught(error)
    raise typer.Exit(ending.exit_code)


def _pack_unless_forked(pid: int, ending: Ending) -> None:
    """No launcher of ours is left to do it."""
    from augury.capture.wire.pack import pack_left

    if os.getpid() == pid:
        pack_left(ending.folder, rank=ending.rank)
