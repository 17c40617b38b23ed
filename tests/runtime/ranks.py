"""Runs scenarios on this rank, one after the other, and tells how they went.

    python -m tests.runtime.ranks REPORT VARIANT MODULE.NAME...

A set of processes for many scenarios: starting them is what takes time.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from tests.runtime import trainings


def main() -> None:
    report, variant, *names = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainings.variant = trainings.VARIANTS[variant]
    if dist.get_world_size() > 2:
        torch.set_default_dtype(torch.float64)  # sums in another order stay close
    results = {}
    for name in names:
        said = io.StringIO()
        error = None
        with contextlib.redirect_stderr(said):
            try:
                module, _, scenario = name.rpartition(".")
                getattr(importlib.import_module(module), scenario)()
            except Exception:
                error = traceback.format_exc()
        results[name] = {"error": error, "said": said.getvalue()}
        # As it goes: a scenario that hangs must not hide the others.
        Path(f"{report}.{dist.get_rank()}").write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)  # scenarios that fail leave connections on which others still wait


if __name__ == "__main__":
    main()
