"""Plain PyTorch programs are recorded as they are: phases, layers, steps and replay."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import augury
from augury.core.enums import Phase
from tests.trainers.recorded_programs import record_program, single, two_ranks

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


def test_a_plain_module_in_one_process_has_a_forward(tmp_path: Path) -> None:
    run = record_program(tmp_path, single("plain_loop.py", "--steps", "32"), num_ranks=1)
    assert run.num_steps() == 32
    run.assert_told_apart()
    run.assert_replays()


def test_forward_and_backward_in_a_closure_are_no_update(tmp_path: Path) -> None:
    run = record_program(tmp_path, two_ranks("plain_loop.py", "--steps", "30", "--closure"))
    assert run.num_steps() == 30
    run.assert_told_apart()
    run.assert_replays()
    assert len(run.graph.gradients)


@pytest.mark.parametrize("num_steps", [3, 8])
def test_a_job_shorter_than_the_regular_windows(tmp_path: Path, num_steps: int) -> None:
    run = record_program(tmp_path, two_ranks("plain_loop.py", "--steps", str(num_steps)))
    assert run.num_steps() == num_steps
    shares = run.shares()
    assert min(shares[name] for name in ("forward", "backward", "communication", "update")) > 0
    assert augury.open(run.out).replay().result.predicted_step_ns > 0
    if num_steps == 8:
        assert len(run.graph.gradients)
        assert run.layer_share(Phase.BACKWARD) > 0.8


FEATURES = {
    "accumulation": ("--accumulate", "3", "--no-sync", "--batch", "24"),
    "synchronised-accumulation": ("--accumulate", "2", "--batch", "32"),
    "clipping": ("--clip",),
    "autocast": ("--autocast", "--model", "conv", "--batch", "8"),
    "scaler": ("--scaler", "--clip"),
    "unused": ("--find-unused", "--model", "branched"),
    "tied": ("--model", "tied"),
    "static": ("--static-graph",),
    "workers": ("--workers", "1"),
    "compiled-inside": ("--compile", "inside"),
    "compiled-outside": ("--compile", "outside"),
}


@pytest.mark.more
@pytest.mark.parametrize("feature", FEATURES)
def test_features_of_plain_loops(tmp_path: Path, feature: str) -> None:
    arguments = ("--steps", "50", *FEATURES[feature])
    run = record_program(tmp_path, two_ranks("plain_loop.py", *arguments))
    assert run.num_steps() == 50
    run.assert_told_apart()
    run.assert_replays()


@pytest.mark.more
def test_evaluation_and_checkpoints_between_steps_are_neither_steps_nor_forward(
    tmp_path: Path,
) -> None:
    arguments = ("--steps", "60", "--evaluate-every", "3", "--save-every", "4")
    run = record_program(tmp_path, two_ranks("plain_loop.py", *arguments))
    assert run.num_steps() == 60
    run.assert_told_apart()
    events = run.trace.events
    is_forward = events.phase == Phase.FORWARD
    names = np.array([run.trace.strings[name] for name in events.name.tolist()])
    is_module = names == "DistributedDataParallel.forward"
    for rank, step in product((0, 1), np.unique(run.graph.ops.step[run.graph.ops.step >= 0])):
        inside = is_module & (events.rank == rank) & (events.step == step)
        assert np.count_nonzero(inside & is_forward) == 1, (rank, step)
    # Evaluations were recorded, too: four forwards each.
    assert np.count_nonzero(is_module & ~is_forward) >= 4
    run.assert_replays()
