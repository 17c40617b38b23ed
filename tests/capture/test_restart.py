"""A real job that torchrun restarts after a rank has failed: its last start is recorded."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from augury.ingest import open_run
from tests.capture.jobs import record, start, torchrun, write_training

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]

FAILS_ONCE = """
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if is_first and step == 10 and os.environ["RANK"] == "1":
        raise RuntimeError("rank 1 fails once")
"""
ENDS_SOONER = """
    if not is_first and step == 3:
        if os.environ["RANK"] == "1":
            os._exit(0)  # without a record: files of the first start must not stand in for it
        break
"""


ANEW = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Otherwise torch reads addresses of the first start in the second one, and fails."""


def recorded(folder: Path, out: Path, *, each_step: str, outside: bool):
    """Records with torchrun inside or outside of `augury run`."""
    script = write_training(folder, each_step=each_step)
    options = ["--steps", "2:4"]
    job = torchrun(script, "12")
    job.insert(job.index("--standalone"), "--max-restarts=1")
    if not outside:
        return record(out, job, *options, **ANEW)
    at = job.index(str(script))
    return start(
        [*job[:at], "-m", "augury", "run", "--out", str(out), *options, "--", *job[at:]], **ANEW
    )


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
def test_no_file_of_the_first_start_is_left(tmp_path: Path, outside: bool):
    out = tmp_path / "run"
    done = recorded(tmp_path, out, each_step=FAILS_ONCE + ENDS_SOONER, outside=outside)
    assert done.returncode == 0, done.stderr
    assert "rank 1 fails once" in done.stderr
    assert "a rank left no record (rank 1)" in done.stderr
    assert [path.name for path in out.iterdir()] == ["rank-00000.json"]
    told = json.loads((out / "rank-00000.json").read_text())
    assert (told["start"], len(told["step_end_ns"])) == (1, 3)


def test_the_last_start_is_recorded_completely(tmp_path: Path):
    out = tmp_path / "run"
    done = recorded(tmp_path, out, each_step=FAILS_ONCE, outside=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads((out / f"rank-0000{rank}.json").read_text()) for rank in (0, 1)]
    assert [(told["start"], len(told["step_end_ns"])) for told in records] == [(1, 12)] * 2
    assert records[0]["job"] == records[1]["job"] != ""
    trace = open_run(out)
    assert [facts.rank for facts in trace.ranks] == [0, 1]
    assert "earlier-start" not in trace.ledger
