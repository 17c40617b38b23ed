"""``augury run`` on real jobs: it records them and does not change them."""

from __future__ import annotations

import gzip
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from augury.capture.launcher.run_summary import summarize_run
from augury.core.errors import UsageError
from augury.core.ledger import Ledger
from augury.core.units import parse_ranks
from tests.capture.jobs import can_unshare, record, start, torchrun, write_training

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def with_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def losses(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("loss")]


def read(out: Path, rank: int) -> dict:
    return json.loads((out / f"rank-{rank:05d}.json").read_text())


def traces(out: Path, rank: int) -> list[str]:
    return [window["trace"] for window in read(out, rank)["windows"] if window["trace"]]


def events(out: Path, rank: int) -> list[dict]:
    with gzip.open(out / traces(out, rank)[0]) as file:
        return json.load(file)["traceEvents"]


def test_two_ranks_are_recorded_and_train_the_same(tmp_path: Path):
    job = torchrun(write_training(tmp_path), "14")
    plain = start(job)
    assert plain.returncode == 0, plain.stderr
    out = tmp_path / "run"
    done = record(out, job, "--steps", "5:9")
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == losses(plain.stdout)
    assert len(losses(done.stdout)) == 2
    for rank in (0, 1):
        told = read(out, rank)
        assert (told["rank"], told["world_size"], told["trouble"]) == (rank, 2, None)
        assert len(told["step_end_ns"]) == 14
        assert told["step_end_ns"] == sorted(told["step_end_ns"])
        names = [event.get("name", "") for event in events(out, rank)]
        assert sum(name.startswith("Optimizer.step") for name in names) == 4
        assert sum(name == "gloo:all_reduce" for name in names) >= 4
    assert "2 ranks recorded" in done.stderr


def test_a_single_process_needs_no_launcher(tmp_path: Path):
    out = tmp_path / "run"
    script = write_training(tmp_path)
    done = record(out, [sys.executable, str(script), "8"], "--steps", "3:6", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["exit_code"] == 0
    (rank,) = said["result"]["ranks"]
    assert (rank["rank"], rank["num_steps"]) == (0, 8)
    assert rank["recorded_step_ns"] > 0
    assert rank["plain_step_ns"] > 0
    assert said["result"]["ledger"] == []


def test_the_programs_own_sitecustomize_and_exit_code(tmp_path: Path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.was_here = 'yes'\n")
    script = write_training(tmp_path, at_end="print('own', was_here); sys.exit(7)")
    command = [sys.executable, str(script), "4"]
    done = record(tmp_path / "run", command, "--steps", "1:3", PYTHONPATH=with_path(own))
    assert done.returncode == 7
    assert read(tmp_path / "run", 0)["job_command"] == command
    assert "own yes" in done.stdout
    assert traces(tmp_path / "run", 0) == ["rank-00000.0.trace.json.gz"]


def test_an_early_end_and_missing_ranks_are_named(tmp_path: Path):
    command = [sys.executable, str(write_training(tmp_path)), "4"]
    done = record(tmp_path / "run", command, "--steps", "3:9", RANK="0", WORLD_SIZE="3")
    assert done.returncode == 0
    assert "a rank left no record (rank 1)" in done.stderr
    assert "before the window's end at 9" in done.stderr
    assert len(read(tmp_path / "run", 0)["step_end_ns"]) == 4


ANOTHER_VERSION = """
from augury.core.import_hook import after_import

after_import("torch.version", lambda module: setattr(module, "__version__", "2.4.1+cpu"))
"""


def test_a_job_without_steps_is_left_alone_and_fails_the_recording(tmp_path: Path):
    """An untested version of torch is reported in one line."""
    script = tmp_path / "idle.py"
    script.write_text("import torch\nprint('sum', torch.ones(3).sum().item())\n")
    (tmp_path / "sitecustomize.py").write_text(ANOTHER_VERSION)
    path = with_path(tmp_path)
    done = record(tmp_path / "run", [sys.executable, str(script)], PYTHONPATH=path)
    assert done.returncode == 1
    assert "sum 3.0" in done.stdout
    assert "nothing was recorded" in done.stderr
    assert "no optimizer stepped" in done.stderr
    assert done.stderr.count("torch 2.4.1+cpu is not tested with this Augury, 2.13 is") == 1


def test_a_job_that_fails_before_it_steps_keeps_its_code(tmp_path: Path):
    done = record(tmp_path / "run", [sys.executable, "-c", "raise SystemExit(7)"])
    assert done.returncode == 7
    assert "no optimizer stepped" in done.stderr
    assert "look at the job's own output: it ended with exit code 7" in done.stderr


def test_a_profiler_of_the_program_takes_precedence(tmp_path: Path):
    script = write_training(
        tmp_path,
        each_step="""
    if step == 4:
        own = torch.profiler.profile()
        own.start()
    if step == 6:
        own.stop()
        print("own events", len(own.events()) > 0)
""",
    )
    done = record(tmp_path / "run", [sys.executable, str(script), "9"], "--steps", "2:8")
    assert done.returncode == 0, done.stderr
    assert "own events True" in done.stdout
    assert "a profiler of its own" in read(tmp_path / "run", 0)["trouble"]


def test_a_record_that_cannot_be_written_does_not_harm_training(tmp_path: Path):
    out = tmp_path / "run"
    script = write_training(
        tmp_path, each_step=f"step == 2 and __import__('shutil').rmtree({str(out)!r})"
    )
    done = record(out, [sys.executable, str(script), "6"], "--steps", "3:5")
    assert len(losses(done.stdout)) == 1
    assert done.returncode == 1, "nothing was recorded"
    assert "error: the folder of the run is gone" in done.stderr
    assert "no optimizer stepped" not in done.stderr


def test_a_killed_rank_leaves_the_others_records(tmp_path: Path):
    script = write_training(
        tmp_path,
        each_step="step == 7 and __import__('os').environ['RANK'] == '1'"
        " and __import__('os').kill(__import__('os').getpid(), 9)",
    )
    out = tmp_path / "run"
    done = record(out, torchrun(script, "9"), "--steps", "2:5")
    assert done.returncode != 0
    for rank in (0, 1):
        assert traces(out, rank), done.stderr
        assert events(out, rank)


@pytest.mark.skipif(not can_unshare(), reason="mount namespaces need privileges")
@pytest.mark.parametrize(("size", "is_empty"), [("4k,nr_inodes=1", True), ("12k", False)])
def test_a_full_disk_does_not_harm_training_and_is_named(tmp_path: Path, size: str, is_empty: bool):
    """No space for the record, and space for the record but not for a trace."""
    script, out = write_training(tmp_path), tmp_path / "run"
    out.mkdir()
    augury = [sys.executable, "-m", "augury", "run", "--out", str(out), "--steps", "2:4", "--"]
    small_disk = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", small_disk, str(out), *augury, str(script), "9"]
    done = start(command)
    assert done.returncode == (1 if is_empty else 0), done.stderr
    assert len(losses(done.stdout)) == 1
    assert "error: no space is left on the disk of the run" in done.stderr
    assert "remedy: free some space" in done.stderr


def test_ranks_that_disagree_are_named(tmp_path: Path):
    for rank, world_size in ((0, 2), (1, 4)):
        told = {"rank": rank, "world_size": world_size, "host": "h", "step_end_ns": [1, 2]}
        (tmp_path / f"rank-{rank:05d}.json").write_text(json.dumps(told))
    ledger = Ledger(summarize_run(tmp_path).ledger)
    assert ledger["world-sizes-differ"].example == "rank 0 says 2, rank 1 says 4"
    assert (ledger["missing-rank"].count, ledger["missing-rank"].example) == (2, "rank 2")


def test_a_job_that_ends_during_the_trial_of_its_plan_needs_more_steps(tmp_path: Path):
    told = {"rank": 0, "world_size": 1, "host": "h", "step_end_ns": [1, 2], "trouble": "it ended"}
    plans = {
        "on trial": ({"is_on_trial": True}, True),
        "before its trial": ({}, True),
        "refused": ({"reason": "the model is compiled"}, False),
        "followed regardless": ({"has_trial": False}, False),
    }
    for plan, is_due in plans.values():
        (tmp_path / "rank-00000.json").write_text(json.dumps(told | {"plan": plan}))
        remedy = Ledger(summarize_run(tmp_path).ledger)["not-recorded"].remedy
        assert ("train for more steps" in remedy) is is_due, plan
        assert ("--steps" in remedy) is not is_due, plan


def test_a_job_that_is_killed_before_its_first_record_is_told_so(tmp_path: Path):
    (tmp_path / "rank-00000.0.trace.json.gz").touch()
    (noted,) = summarize_run(tmp_path, exit_code=137).ledger
    assert "before the first rank record was written" in noted.meaning
    assert "exit code 137" in noted.remedy


def test_usage_errors(tmp_path: Path):
    command = [sys.executable, "-c", "pass"]
    for steps in ("20:10", "0:5", "5", "a:b", "5:9,9:12", "5:9,"):
        done = record(tmp_path / "run", command, "--steps", steps)
        assert done.returncode == 2, steps
        assert "is not a window of steps" in done.stderr
    assert record(tmp_path / "run", ["no-such-command"]).returncode == 2
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    done = record(full, command)
    assert done.returncode == 2
    assert "exists and is not empty" in done.stderr


def test_ranks_are_chosen_by_number_and_range():
    assert parse_ranks(None) is None
    assert parse_ranks("0,3-5,4") == (0, 3, 4, 5)
    for text in ("", "a", "5-3", "-1", "1,", "1-", "9999999", "²"):
        with pytest.raises(UsageError, match="does not name ranks"):
            parse_ranks(text)


def test_commands_that_cannot_run_are_refused(tmp_path: Path):
    for words, message in (([], "no job was given"), (["none.py"], "there is no script 'none.py'")):
        done = record(tmp_path / "run", words)
        assert done.returncode == 2
        assert message in done.stderr
    assert not (tmp_path / "run").exists()


SPAWNS = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
"""


@pytest.mark.more
def test_processes_that_the_program_spawns_have_ranks_of_their_own(tmp_path: Path):
    script, out = tmp_path / "spawns.py", tmp_path / "run"
    script.write_text(SPAWNS)
    done = record(out, [sys.executable, str(script), str(tmp_path / "store")], "--steps", "2:4")
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(path.read_text()) for path in sorted(out.glob("rank-*.json"))]
    assert [(told["rank"], told["world_size"]) for told in ranks] == [(0, 2), (1, 2)]
    assert all(told["trouble"] is None and len(told["step_end_ns"]) == 8 for told in ranks)
    assert all((out / f"rank-0000{rank}.0.trace.json.gz").exists() for rank in (0, 1))
