"""How tests are distributed over the workers of xdist."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.docs.layout_page import ROOT

_STARTS_TRAINING = ("tests/capture/test_step_log.py", "tests/capture/test_window_schedule.py")
_OTHERS = ("tests/core/test_units.py",)


def test_one_worker_starts_all_training() -> None:
    options = ["-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-vv"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *_STARTS_TRAINING, *_OTHERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    workers = {test: gw for gw, test in re.findall(r"\[(gw\d)\] .*PASSED (\S+)", done.stdout)}
    assert {test.split("::")[0] for test in workers} == {*_STARTS_TRAINING, *_OTHERS}
    assert len({gw for test, gw in workers.items() if test.startswith(_STARTS_TRAINING)}) == 1
    assert len(set(workers.values())) == 2
