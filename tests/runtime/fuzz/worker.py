"""One rank: runs the programs that it is sent, one after the other, and reports on each."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import os
import signal
import traceback
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.runtime.fuzz.compare import differences, distance
from tests.runtime.fuzz.execute import run_program
from tests.runtime.fuzz.program import Program

MAX_DIFFERENCES = 6
TINY_BUCKETS_MB = 1e-4
GIVE_UP_AFTER = timedelta(minutes=20)
"""Longer than any limit of the campaign: it decides what hangs."""


def serve(rank: int, num_ranks: int, store: Path, pipe: Any, errors: Path) -> None:
    """Until the pipe ends. SIGUSR1 writes the stacks of all threads to ``errors``."""
    with errors.open("w") as file:
        os.dup2(file.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=num_ranks,
        timeout=GIVE_UP_AFTER,
    )
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while (task := pipe.recv()) is not None:
            program, is_planned = task
            pipe.send(("done", _report(program, pipe, is_planned=is_planned)))
    # The process has nothing left that is worth a clean end.
    os._exit(0)


def _report(program: Program, pipe: Any, *, is_planned: bool) -> dict[str, Any]:
    """Under stock DDP, then under its plans; or else again under stock DDP, with other buckets
    and parameters that start one unit in the last place off."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            stock = run_program(
                program, is_planned=False, beat=lambda step: pipe.send(("stock", step))
            )
            if not is_planned:
                is_tiny = program.bucket_cap_mb == TINY_BUCKETS_MB
                program = replace(program, bucket_cap_mb=0.0 if is_tiny else TINY_BUCKETS_MB)
            planned = run_program(
                program,
                is_planned=is_planned,
                beat=lambda step: pipe.send(("planned", step)),
                changes_last_bits=not is_planned,
            )
        is_exact = program.num_ranks == 2
        found = [*islice(differences(stock, planned, is_exact=is_exact), MAX_DIFFERENCES)]
        gc.collect()
        return {
            "differences": found,
            "distance": distance(stock, planned),
            "stock_error": stock.trace,
            "planned_error": planned.trace,
            "num_steps": planned.num_steps,
            "num_followed": planned.num_followed,
            "num_replans": planned.num_replans,
            "num_switches": planned.num_switches,
            "reasons": planned.reasons,
            "said": said.getvalue(),
        }
    except BaseException:
        return {"crash": traceback.format_exc(), "said": said.getvalue()}
