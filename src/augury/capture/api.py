"""``augury.record``: recording asked for by the script itself, in two lines."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import shlex
import sys
from pathlib import Path

from augury.capture.launcher.in_process import arrange_here, is_rank
from augury.capture.launcher.run_folder import prepare_folder
from augury.capture.rank_record import own_rank
from augury.capture.settings import Settings, parse_windows
from augury.core.errors import UsageError
from augury.core.units import parse_ranks

_is_arranged = False


def record(
    out: str | os.PathLike[str] = "augury-run",
    *,
    steps: str = "auto",
    ranks: str | None = None,
    calibrate: bool = False,
    force: bool = False,
) -> None:
    """What ``augury run`` does, from within: to be called at a script's beginning, by every rank.

    Does nothing in a job that ``augury run`` records already.
    """
    global _is_arranged  # noqa: PLW0603
    if Settings.VARIABLE in os.environ:
        return
    windows, chosen = parse_windows(steps), parse_ranks(ranks)
    if _is_arranged:
        raise UsageError("augury.record was called before", remedy="call it once")
    if _has_trained():
        raise UsageError(
            "training has begun before augury.record was called",
            remedy="call it in the first lines of the script",
        )
    if multiprocessing.parent_process() is None:
        rank, _ = own_rank()
        folder = prepare_folder(Path(out), force=force, rank=rank if is_rank() else None)
        if rank == 0:
            # Called after what the recorder does at the end, being registered before it.
            atexit.register(_tell, os.getpid(), folder, os.fspath(out))
    else:
        # A script that is imported again by a process of its own making: judged there already.
        folder = Path(out).resolve()
    arrange_here(Settings(out=str(folder), windows=windows, calibrate=calibrate, ranks=chosen))
    _is_arranged = True


def _has_trained() -> bool:
    """As far as can be seen: gradients are there, or a learning-rate schedule knows."""
    torch_optim = sys.modules.get("torch.optim.optimizer")
    if torch_optim is None:
        return False
    optimizers = [
        thing for thing in gc.get_objects() if issubclass(type(thing), torch_optim.Optimizer)
    ]
    return any(
        getattr(optimizer, "_opt_called", False)
        or any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
        for optimizer in optimizers
    )


def _tell(pid: int, folder: Path, out: str) -> None:
    """To stderr, for stdout is the script's. Gaps are named; examples come from files, and stay
    there."""
    if os.getpid() != pid:
        return
    from augury.capture.launcher.run_summary import summarize_run

    try:
        summary = summarize_run(folder)
        lines = [f"augury: {len(summary.ranks)} ranks recorded in {out}"]
        lines += [f"  {anomaly.severity}: {anomaly.meaning}" for anomaly in summary.ledger]
        lines.append(f"next: augury replay {shlex.quote(out)}")
        print(*lines, sep="\n", file=sys.stderr)
    except Exception as error:
        print(f"augury: cannot tell what was recorded: {error}", file=sys.stderr)
