"""Runs a training program unchanged under torch's profiler and writes its peak of allocated memory.

``python -m benchmarks.testbed.allocations OUT [--plan PLAN] PROGRAM ARGUMENTS``: the profiler sees
every allocation from the program's first line on. The peak is that of the steps after the first
ones, in which the optimizer allocates its state, DDP its buckets, and a plan is not followed yet.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from augury.core.plan.plan_board import board
from augury.runtime.torch.injection import TRIAL_VARIABLE, arrange

SKIPPED_STEPS = 5
UPDATE = "Optimizer.step#"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of one file per rank")
    parser.add_argument("--plan", help="followed from the start, without a trial")
    parser.add_argument("program", help="a script or a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.plan is not None:
        os.environ[TRIAL_VARIABLE] = "0"
        arrange(options.plan)
    found = peaks_of(options.program, options.arguments)
    rank = int(os.environ.get("RANK", "0"))
    status = None if board.status is None else msgspec.to_builtins(board.status)
    path = options.out / f"peak-{rank:05d}.json"
    path.write_text(json.dumps({"step_peaks_bytes": found, "plan": status}))


def peaks_of(program: str, arguments: Sequence[str]) -> list[int]:
    """Returns the peak of every step after the first ones."""
    import torch

    sys.argv = [program, *arguments]
    count_in_all_threads()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        if program.endswith(".py"):
            sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_bytes())["traceEvents"]
    return step_peaks(events)


def step_peaks(events: Sequence[dict[str, Any]]) -> list[int]:
    """Returns the largest number of allocated bytes between two ends of the optimizer's step, for
    each such pair after the first ones."""
    ends = sorted(
        event["ts"] + event["dur"] for event in events if event.get("name", "").startswith(UPDATE)
    )
    totals = sorted(
        (event["ts"], int(event["args"]["Total Allocated"]))
        for event in events
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0
    )
    peaks = [0] * (len(ends) + 1)
    held = step = 0
    for at, total_bytes in totals:
        while step < len(ends) and at >= ends[step]:
            step += 1
            peaks[step] = held
        held = total_bytes
        peaks[step] = max(peaks[step], held)
    return peaks[SKIPPED_STEPS : len(ends)]


def count_in_all_threads() -> None:
    """Makes torch count what threads without a profiler free, as those of gloo do. The events of
    other threads then state right totals."""
    import torch

    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage").value = True


if __name__ == "__main__":
    main()
