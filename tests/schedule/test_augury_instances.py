"""The benchmark instances have their documented properties."""

from __future__ import annotations

import json

import pytest
from benchmarks.schedule import random as random_problems
from benchmarks.schedule.instances import instance
from benchmarks.schedule.models import MODELS

from augury.core.plan.problem import Scheme
from augury.schedule.search.bursts import find_bursts


@pytest.mark.parametrize(
    ("name", "num_tensors", "num_parameters"),
    [
        ("resnet50", 161, 25_557_032),
        ("vgg16", 32, 138_357_544),
        ("inception-v3", 284, 23_834_568),
        ("bert-base", 199, 109_482_240),
        ("bert-large", 391, 335_141_888),
        ("gpt2", 148, 124_439_808),
    ],
)
def test_models_have_their_tensors(name, num_tensors, num_parameters):
    tensors = [size for layer in MODELS[name]() for size in layer.tensors]
    assert (len(tensors), sum(tensors)) == (num_tensors, num_parameters)


def test_instances_are_reproducible():
    assert instance(7) == instance(7)
    assert instance(7) != instance(8)
    assert instance(7) != instance(7, seed=1)


def test_instances_are_of_many_kinds():
    problems = [instance(number) for number in range(60)]
    assert {problem.network.scheme for problem in problems} == set(Scheme)
    assert len({len(problem.gradients) for problem in problems}) == len(MODELS)
    bursts = [len(find_bursts(problem)) / len(problem.gradients) for problem in problems]
    assert min(bursts) < 0.1
    assert max(bursts) > 0.5
    for problem in problems:
        # Updates, and what lies between backward and forward, are up to a ninth of compute.
        assert 0.2 / 1.12 < problem.ratio < 4.01
        assert 10_000 <= problem.network.overhead_ns <= 1_000_000


def test_figures_are_printed(capsys):
    assert random_problems.main(["--count", "4", "--rivals-every", "4", "--jobs", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["holds"]
    assert len(said["policies"]) == 9
    assert said["policies"]["augury"]["gap_pct"]["max"] < 2
