"""``augury run --watch`` on real jobs: a slow rank, a healthy job, a failing watcher."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest

from augury.core.results.watch import WatchLine
from tests.capture.jobs import start_ranks, write_training

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

NUM_STEPS = 60
SLOW_FROM = 30
SLOW_MIDWAY = f"time.sleep(0.02 + 0.06 * (os.environ['RANK'] == '1' and step >= {SLOW_FROM}))"
EQUAL = "time.sleep(0.1)"


def watch(folder: Path, each_step: str) -> tuple[list[CompletedProcess[str]], str]:
    """Ranks write to folders of their own, as on hosts that share none. Returns what they printed,
    and the loss of all of them."""
    script = write_training(folder, each_step=each_step)
    options = "--steps 3:5 --watch 10 --force"
    command = (
        f"exec {sys.executable} -m augury run --out {folder}/run-$RANK {options}"
        f" {script} {NUM_STEPS}"
    )
    done = start_ranks(["sh", "-c", command], num_ranks=2)
    assert [one.returncode for one in done] == [0, 0], done
    return done, loss_of(done)


def loss_of(done: list[CompletedProcess[str]]) -> str:
    (loss,) = {line for one in done for line in one.stdout.splitlines() if "loss" in line}
    return loss


def alerts(done: list[CompletedProcess[str]]) -> list[str]:
    return [line for one in done for line in one.stderr.splitlines() if ": step " in line]


def lines_of(folder: Path) -> list[WatchLine]:
    text = (folder / "run-0/watch.jsonl").read_text()
    return [msgspec.json.decode(line, type=WatchLine, strict=True) for line in text.splitlines()]


@pytest.fixture(scope="module")
def plain_loss(tmp_path_factory: pytest.TempPathFactory) -> str:
    script = write_training(tmp_path_factory.mktemp("plain"))
    return loss_of(start_ranks([sys.executable, str(script), str(NUM_STEPS)], num_ranks=2))


def test_a_rank_that_becomes_slow_is_named_once(tmp_path: Path, plain_loss: str) -> None:
    done, loss = watch(tmp_path, SLOW_MIDWAY)
    assert loss == plain_loss
    (alert,) = alerts(done)
    assert "rank 1 is a straggler" in alert
    assert "in input; the step takes" in alert
    lines = lines_of(tmp_path)
    assert [(line.first_step, line.last_step) for line in lines] == [
        (first, first + 7) for first in (12, 22, 32, 42, 52)
    ]
    # One slow window may be chance, the second one is news.
    assert [line.changed for line in lines] == [False, False, False, True, False]
    assert alert == f"augury: {lines[3].text}"
    last = lines[-1]
    assert last.verdict is not None
    assert (last.verdict.bound, last.verdict.rank, last.verdict.part) == ("straggler", 1, "input")
    assert last.missing_ranks == []
    first, second = last.ranks
    assert second.input_ns - first.input_ns > 50_000_000
    assert first.communication_ns - second.communication_ns > 50_000_000
    assert f"5 windows, 1 change of the verdict, in {tmp_path}/run-0/watch.jsonl" in done[0].stderr
    assert not (tmp_path / "run-1/watch.jsonl").exists()


def test_a_healthy_job_prints_nothing(tmp_path: Path, plain_loss: str) -> None:
    done, loss = watch(tmp_path, EQUAL)
    assert loss == plain_loss
    assert alerts(done) == []
    lines = lines_of(tmp_path)
    assert len(lines) == 5
    assert not any(line.changed for line in lines)
    assert all(len(line.ranks) == 2 and line.verdict is not None for line in lines[1:])
    for rank in (rank for line in lines for rank in line.ranks):
        assert 100_000_000 <= rank.input_ns <= rank.step_ns
        assert rank.forward_ns > 0
        assert rank.update_ns > 0


def test_a_failing_watcher_leaves_training_and_recording_alone(
    tmp_path: Path, plain_loss: str
) -> None:
    (tmp_path / "run-0/watch.jsonl").mkdir(parents=True)
    done, loss = watch(tmp_path, "pass")
    assert loss == plain_loss
    assert "augury: rank 0 is not watched any more: IsADirectoryError" in done[0].stderr
    assert "watched: no window was complete" in done[0].stderr
    for rank in (0, 1):
        record = json.loads((tmp_path / f"run-{rank}/rank-0000{rank}.json").read_text())
        assert record["trouble"] is None
        assert len(record["step_end_ns"]) == NUM_STEPS
        assert all(window["trace"] for window in record["windows"])
