"""Starts a job under the recorder, becomes a rank of it, or repeats it with and without a plan."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from augury.capture.launcher.in_process import (
    arrange_here,
    exit_code_of,
    is_python,
    is_rank,
    run_python,
    tell_uncaught,
)
from augury.capture.launcher.launch import as_program, launch
from augury.capture.launcher.run_folder import prepare_folder
from augury.capture.launcher.run_summary import summarize_run
from augury.capture.launcher.time_modules import time_modules
from augury.capture.process_identity import own_rank
from augury.capture.settings import (
    DEFAULT_CALIBRATE_SECONDS,
    Settings,
    checked_distance,
    parse_windows,
)
from augury.capture.wire.pack import pack_left
from augury.capture.wire.preload import become_wired, wire_environment
from augury.core.errors import UsageError
from augury.core.plan.plan_file import load_plan
from augury.core.results.recorded_run import RunSummary
from augury.core.units import parse_ranks
from augury.runtime.torch.injection import TRIAL_VARIABLE, VARIABLE, tell_refusals
from augury.runtime.torch.injection import arrange as arrange_plan

if TYPE_CHECKING:
    from augury.api_options import RunOptions

MAX_COMMAND_CHARS = 10_000
"""A longer command is not recorded: the settings travel in one environment variable."""
BASELINE, PLANNED = "baseline", "planned"
"""Folders of the repeated runs without and with the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command to record, with the recorder's settings. ``make_job`` makes it."""

    words: list[str]
    out: Path
    """Folder of the run, as the user wrote it."""
    settings: Settings
    rank: int | None
    """Rank of this process if a launcher started it, else None."""
    becomes_rank: bool
    """Whether the job runs in this process, as the rank that a launcher made of it."""
    plan: Path | None = None
    has_trial: bool = True
    force: bool = False

    def environment(self) -> dict[str, str]:
        """The variables of this process, and those that name the plan to the job's processes."""
        if self.plan is None:
            return dict(os.environ)
        return os.environ | {
            VARIABLE: os.path.realpath(self.plan),
            TRIAL_VARIABLE: str(int(self.has_trial)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    out: Path
    rank: int | None
    """The rank that the summary is about; None if it is about the whole job."""
    exit_code: int
    """The job's own exit code."""
    summary: RunSummary

    @property
    def verb_exit_code(self) -> int:
        """The job's exit code, or 1 if the job succeeded and nothing was recorded."""
        return self.exit_code or int(self.summary.is_empty)


Report = Callable[[FinishedJob], None]
"""Called at the end of each recorded job, to print its summary."""


def make_job(
    command: Sequence[str],
    *,
    module: str | None = None,
    out: Path,
    steps: str = "auto",
    ranks: str | None = None,
    calibrate: bool = False,
    calibrate_seconds: float = DEFAULT_CALIBRATE_SECONDS,
    wire: bool = False,
    wire_events: int = 1 << 20,
    watch: int | None = None,
    plan: Path | None = None,
    has_trial: bool = True,
    force: bool = False,
) -> Job:
    """Checks the options and the plan. Nothing is started or written yet."""
    windows, chosen = parse_windows(steps), parse_ranks(ranks)
    _check_plan(plan, has_trial=has_trial)
    words = _checked_words(list(command), module)
    rank = own_rank()[0] if is_rank() else None
    becomes_rank = rank is not None and is_python(words)
    if becomes_rank and Settings.VARIABLE in os.environ:
        raise UsageError(
            "this process is recorded already", remedy="leave out one of the two `augury run`"
        )
    settings = Settings(
        out=os.path.realpath(out),
        windows=windows,
        calibrate=calibrate,
        calibrate_seconds=calibrate_seconds,
        ranks=chosen,
        wire=wire,
        wire_events=wire_events,
        watch=checked_distance(watch),
        job_command=tuple(words) if rank is None and _is_short(words) else (),
    )
    return Job(
        words=words,
        out=out,
        settings=settings,
        rank=rank,
        becomes_rank=becomes_rank,
        plan=plan,
        has_trial=has_trial,
        force=force,
    )


def run_job(job: Job, report: Report) -> int:
    """Runs and records the job; returns the exit code for ``augury run``. A job that becomes this
    process may end it, and is reported when the process exits."""
    if job.becomes_rank:
        become_wired(job.settings)  # may execute this process anew, so before the folder is made
    else:
        wire_environment(job.settings)  # raises before anything is written
    folder = prepare_folder(job.out, force=job.force, rank=job.rank)
    if job.becomes_rank:
        return _become_rank(job, folder, report)
    return _launch(job, folder, report, job.environment())


def repeat_job(job: Job, number: int, report: Report) -> int:
    """Runs the job ``number`` times without its plan and as often with it, alternating. Returns the
    exit code of the first run that failed or recorded nothing, else 0."""
    if job.plan is None:
        raise UsageError("--repeat-baseline needs a plan to compare with", remedy="give --plan")
    if job.becomes_rank:
        raise UsageError(
            "a rank cannot repeat its job",
            remedy="start the launcher within: augury run ... -- torchrun ... train.py",
        )
    wire_environment(job.settings)
    runs = [(name, job.out / name / place) for name, place in alternating_runs(number)]
    folders = [prepare_folder(out, force=job.force) for _, out in runs]
    first = next(out for name, out in runs if name == BASELINE)
    for (name, out), folder in zip(runs, folders, strict=True):
        environment = job.environment()
        if name == BASELINE:
            del environment[VARIABLE]
        settings = replace(job.settings, out=str(folder))
        if out is not first:
            settings = replace(settings, calibrate_seconds=0)  # the modules are the same
        one = replace(job, out=out, settings=settings, rank=None)
        code = _launch(one, folder, report, environment)
        if code:
            return code
    return 0


def record_jobs(
    command: Sequence[str],
    *,
    out: Path,
    plan: Path | None = None,
    number: int | None = None,
    **options: Unpack[RunOptions],
) -> list[FinishedJob]:
    """Runs and records a job, ``number`` times without and with its plan if that is given, and
    returns the finished jobs."""
    finished: list[FinishedJob] = []
    job = make_job(command, out=out, plan=plan, **options)
    if job.becomes_rank:
        raise UsageError(
            "this process is a rank of a job", remedy="call augury.record in it instead"
        )
    if number is None:
        run_job(job, finished.append)
    else:
        repeat_job(job, number, finished.append)
    return finished


def alternating_runs(number: int) -> list[tuple[str, str]]:
    """Folders of the runs in order. The first of each pair alternates, so that a machine that
    becomes slower or faster does so for both."""
    pairs = [(BASELINE, PLANNED) if i % 2 else (PLANNED, BASELINE) for i in range(1, number + 1)]
    return [(name, str(i)) for i, pair in enumerate(pairs, start=1) for name in pair]


def _launch(job: Job, folder: Path, report: Report, environment: dict[str, str]) -> int:
    exit_code = launch(as_program(job.words), job.settings, environment)
    finished = _finished(job, folder, exit_code)
    report(finished)
    return finished.verb_exit_code


def _become_rank(job: Job, folder: Path, report: Report) -> int:
    """Runs the job in this process, which a launcher has started as one rank."""
    exit_code = 0
    has_succeeded = False
    pid = os.getpid()  # handlers also run in processes that the job forks

    def report_at_exit() -> None:
        if os.getpid() == pid:
            time_modules(job.settings, os.environ, has_succeeded=has_succeeded)
            try:
                report(_finished(job, folder, exit_code))
            except Exception as error:  # the job must not fail for it
                print(f"augury: cannot summarize the recorded run: {error}", file=sys.stderr)

    def pack_at_exit() -> None:
        if os.getpid() == pid:
            pack_left(folder, rank=job.rank)

    if job.rank == 0:
        # Registered before the recorder's own handlers, so it runs after them.
        atexit.register(report_at_exit)
    if job.settings.wire:
        atexit.register(pack_at_exit)
    os.environ.update(job.environment())
    arrange_here(job.settings)
    tell_refusals()
    arrange_plan()
    try:
        run_python(job.words)
        has_succeeded = True
    except SystemExit as end:
        exit_code = exit_code_of(end)
        has_succeeded = exit_code == 0
        raise
    except Exception as error:
        exit_code = 1
        tell_uncaught(error)
    return exit_code


def _finished(job: Job, folder: Path, exit_code: int) -> FinishedJob:
    # Rank 0 ends last, so its summary is of all ranks.
    settings = job.settings
    summary = summarize_run(
        folder,
        rank=job.rank or None,
        wire=settings.wire,
        watch=bool(settings.watch),
        exit_code=exit_code,
    )
    return FinishedJob(out=job.out, rank=job.rank, exit_code=exit_code, summary=summary)


def _checked_words(command: list[str], module: str | None) -> list[str]:
    words = command if module is None else ["-m", module, *command]
    if not words or words == ["-m"]:
        raise UsageError(
            "no job was given", remedy="for example: augury run -- torchrun ... train.py"
        )
    if words[0].endswith(".py") and not os.path.exists(words[0]):
        raise UsageError(f"there is no script {words[0]!r}", remedy="check its name")
    return words


def _is_short(words: list[str]) -> bool:
    # Words travel as JSON in one variable of the environment, whose size is limited.
    return len(json.dumps(words)) <= MAX_COMMAND_CHARS


def _check_plan(plan: Path | None, *, has_trial: bool) -> None:
    if plan is not None:
        load_plan(plan)
    elif not has_trial:
        raise UsageError("--no-trial needs a plan", remedy="name one with --plan")
