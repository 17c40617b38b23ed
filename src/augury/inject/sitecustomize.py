"""Imported by Python at startup: runs the program's own sitecustomize, then starts the recorder.

The launcher puts this folder first on ``PYTHONPATH`` of the job's processes.
"""

import contextlib
import importlib
import os
import sys


def _run_own_sitecustomize() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


def _record() -> None:
    try:
        from augury.capture.bootstrap import arrange
    except ImportError:
        # A different interpreter than the launcher's: the package lies two folders up.
        root = os.path.dirname(os.path.abspath(__file__))
        for _ in range(2):
            root = os.path.dirname(root)
        sys.path.append(root)
        from augury.capture.bootstrap import arrange
    arrange()


def _provide_refusals() -> None:
    from augury.core.import_hook import after_import

    def provide(_module: object) -> None:
        with contextlib.suppress(Exception):  # optional for a recording
            from augury.runtime.torch.injection import tell_refusals

            tell_refusals()

    after_import("torch.optim.optimizer", provide)


def _follow_plan() -> None:
    if os.environ.get("AUGURY_PLAN"):
        from augury.runtime.torch.injection import arrange

        arrange()


try:
    _run_own_sitecustomize()
finally:
    try:
        _record()
        _provide_refusals()
    except Exception as error:
        print(f"augury: cannot record here: {error}", file=sys.stderr)
    try:
        _follow_plan()
    except Exception as error:
        print(f"augury: the plan is not followed: {error}", file=sys.stderr)
