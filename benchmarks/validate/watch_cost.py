"""Overhead of ``augury run --watch``: steps in watch windows next to the steps between them.

One job is watched much more often than any user would. Each window is compared with the steps
around it, so a slow minute of the machine affects both. The sum of the delays of one window,
divided by the usual distance of windows, is the average cost. A second job without Augury shows
that the loss is the same.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from augury.capture.watch.window import NUM_STEPS
from benchmarks.validate.checks import Check
from benchmarks.validate.job import (
    JobError,
    attend,
    bed_as_recorded,
    bed_of,
    end,
    environment,
    gather,
    training,
)
from benchmarks.validate.schedule import Schedule
from benchmarks.validate.settings import Setting

SUITE = "torch"
DISTANCE = 25
"""Steps between two watch windows of the measured job."""
USUAL_DISTANCE = 500
NUM_DELAYED = NUM_STEPS + 2
"""Steps that a window can delay: one before the measured ones, and one after them."""
NUM_WINDOWS = 20


def cost_of_watch(setting: Setting, folder: Path) -> Iterator[Check]:
    folder = folder.resolve()  # a host's processes start in another folder
    shutil.rmtree(folder, ignore_errors=True)
    trouble, value, noise, losses = None, None, None, 1
    try:
        watched = _run(setting, folder / "with", watched=True)
        plain = _run(setting, folder / "without", watched=False)
        losses = len({watched, plain})
        shares = window_delays(folder / "with" / "raw")
        value = round(_average_pct(shares), 3)
        noise = round(2 * abs(_average_pct(shares[::2]) - _average_pct(shares[1::2])), 3)
    except (JobError, OSError) as error:
        trouble = str(error)
    yield Check(
        suite=SUITE,
        case="watch/average",
        kind="cost",
        value=value,
        unit="%",
        at_most=1.0,
        noise=noise,
        trouble=trouble,
    )
    yield Check(
        suite=SUITE,
        case="watch/losses-that-differ",
        kind="loss",
        value=losses - 1,
        unit="",
        at_most=0,
        trouble=trouble,
    )


def _run(setting: Setting, folder: Path, *, watched: bool) -> str:
    """Returns the loss after the last step, to the last bit."""
    gate = folder / "gate"
    gate.mkdir(parents=True)
    bare = replace(setting, changes=())
    with bed_of(bare) as bed:
        bed_as_recorded(bed, bare)
        num_steps = DISTANCE * (NUM_WINDOWS + 2)
        command = [*training(Schedule(bare), gate, folder), "--steps", str(num_steps)]
        if watched:
            out = bed.hosts[0].scratch / "run"
            augury = [sys.executable, "-m", "augury", "run", "--out", str(out)]
            command = [*augury, "--steps", "10:12", "--watch", str(DISTANCE), "--", *command]
        jobs = [
            bed.start(host, command, environment(bed, host), folder / f"log-{host}.txt")
            for host in range(bare.num_ranks)
        ]
        try:
            attend(bed, bare, [], gate, jobs)
        finally:
            for job in jobs:
                end(job)
        if any(job.returncode for job in jobs):
            raise JobError((folder / "log-0.txt").read_text(errors="replace")[-800:])
        if watched:
            gather(bed, folder / "raw")
    return str(json.loads((folder / "times-00000.json").read_text())["last_loss"])


def window_delays(run: Path) -> list[list[float]]:
    """For each watch window, the delays of its steps as shares of the steps around it. The first
    window, which also searches the modules, is left out."""
    lines = [json.loads(line) for line in (run / "watch.jsonl").read_text().splitlines()]
    ends = json.loads((run / "rank-00000.json").read_text())["step_end_ns"]
    step_ns = np.diff(ends, prepend=ends[0])  # of step 1 at index 0
    found = []
    for line in lines[1:]:
        first = line["first_step"] - 2  # index of the step before the measured ones
        after = first + NUM_DELAYED
        around = [*step_ns[first - DISTANCE + NUM_DELAYED : first], *step_ns[after:][:NUM_STEPS]]
        usual_ns = float(np.median(around))
        found.append([float(one) / usual_ns - 1 for one in step_ns[first:after]])
    if len(found) < 2:
        raise JobError("the job was not watched")
    return [one for one in found if len(one) == NUM_DELAYED]


def _average_pct(windows: Sequence[Sequence[float]]) -> float:
    """Medians by position in the window: single slow steps are chance."""
    sum_of_delays = float(sum(median(position) for position in zip(*windows, strict=True)))
    return 100 * sum_of_delays / USUAL_DISTANCE
