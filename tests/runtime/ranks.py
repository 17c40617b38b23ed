"""Runs scenarios on this rank, one after the other, and tells how they went.

    python -m tests.runtime.ranks REPORT MODULE NAME...

Two processes for many scenarios: starting them is what takes time.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    report, module, *names = sys.argv[1:]
    scenarios = importlib.import_module(module)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {}
    for name in names:
        said = io.StringIO()
        error = None
        with contextlib.redirect_stderr(said):
            try:
                getattr(scenarios, name)()
            except Exception:
                error = traceback.format_exc()
        results[name] = {"error": error, "said": said.getvalue()}
        # As it goes: a scenario that hangs must not hide the others.
        Path(f"{report}.{dist.get_rank()}").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
