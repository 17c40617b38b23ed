"""Diagnoses of synthetic runs, whose causes are known exactly, and of damaged or odd ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import augury
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.results.diagnosis import Diagnosis
from augury.diagnose.detectors.registry import DETECTORS
from tests.diagnose.small_graphs import MODEL, diagnosis, finding, kinds, synthetic, two_ranks


def check_waterfall(found: Diagnosis) -> None:
    """The parts add up to the step, and each removal shortens it."""
    left = found.replayed_step_ns if found.measured_step_ns is None else found.measured_step_ns
    for part in found.waterfall:
        assert part.step_ns == left - part.removed_ns
        assert part.removed_ns > 0 or part.name == "difference to the replay"
        left = part.step_ns


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jitter": 0.03},
        {"straggler": ["2:1.5"]},
        {"bandwidth": "10Gbit/s"},
        {"bandwidth": "10Gbit/s", "algorithm": "ring", "steps": 1},
        {"scheme": "ps", "bandwidth": "10Gbit/s", "steps": 1},
        {"scheme": "pipeline", "bandwidth": "10Gbit/s", "steps": 2, "jitter": 0.1},
        {"barrier": False, "bandwidth": "5Gbit/s"},
        {"ranks": 1},
    ],
)
def test_parts_of_the_waterfall_add_up_to_the_step(options: dict[str, Any]) -> None:
    found = diagnosis(synthetic(**options))
    check_waterfall(found)
    assert found.waterfall or found.replayed_step_ns > 0


@pytest.mark.parametrize("seed", range(10))
def test_healthy_runs_have_no_findings(seed: int) -> None:
    found = diagnosis(synthetic(jitter=0.02, seed=seed, steps=12))
    assert kinds(found) == []
    assert found.bound == "compute"
    assert "nothing worth doing" in found.verdict


@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0])
def test_a_slow_rank_is_found_with_the_gain_that_its_slowdown_cost(factor: float) -> None:
    found = diagnosis(synthetic(straggler=[f"2:{factor}"], jitter=0.01))
    first = found.findings[0]
    assert (first.kind, first.where.ranks, first.where.hosts) == (
        "straggler-compute",
        [2],
        ["host2"],
    )
    healthy_ns = diagnosis(synthetic(jitter=0.01)).replayed_step_ns
    cost_pct = 100 * (1 - healthy_ns / found.replayed_step_ns)
    assert first.gain_pct == pytest.approx(cost_pct, abs=1.5)
    low, high = first.gain_interval_pct or (math.nan, math.nan)
    assert low <= cost_pct <= high
    assert found.bound == ("straggler" if factor > 1.2 else "compute")
    if factor > 1.2:
        assert "waiting for rank 2" in found.verdict


def test_two_slow_ranks_of_a_host_are_one_finding() -> None:
    graph = synthetic(ranks=8, ranks_per_host=2, straggler=["4:1.4", "5:1.4"])
    first = diagnosis(graph).findings[0]
    assert (first.kind, first.where.ranks) == ("straggler-compute", [4, 5])
    assert "host host2" in first.title


def test_exposed_communication_is_the_time_that_a_free_network_would_save() -> None:
    slow = diagnosis(synthetic(bandwidth="10Gbit/s", latency="20us"))
    free_ns = diagnosis(synthetic()).replayed_step_ns
    assert slow.bound == "communication"
    exposed = next(part for part in slow.waterfall if part.name == "exposed communication")
    assert exposed.step_ns == pytest.approx(free_ns, rel=0.01)
    assert kinds(slow) == ["exposed-communication"]


def test_uneven_stages_are_named() -> None:
    graph = synthetic(
        scheme="pipeline", model="uniform", layers=4, ranks=4, micro_batches=8, steps=4
    )
    layer = [graph.strings[int(number)] for number in graph.ops.layer]
    slow = np.array([name == "layer3" for name in layer])
    work_ns = np.where(slow, graph.ops.work_ns * 2, graph.ops.work_ns)
    found = diagnosis(graph.with_work_ns(work_ns))
    stages = finding(found, "stage-imbalance")
    assert found.findings[0] == stages
    assert (stages.where.ranks, stages.where.layers) == ([3], ["layer3"])
    assert found.bound == "pipeline"
    # All stages at the mean of 1, 1, 1 and 2.
    even_ns = diagnosis(
        graph.with_work_ns(np.where(np.isin(graph.ops.kind, [OpKind.FORWARD, OpKind.BACKWARD]),
                                    graph.ops.work_ns * 5 // 4, graph.ops.work_ns))
    ).replayed_step_ns  # fmt: skip
    assert stages.predicted_step_ns == pytest.approx(even_ns, rel=0.02)


def test_input_that_all_ranks_wait_for_is_found() -> None:
    found = diagnosis(two_ranks([{"data": [500, 500], **MODEL}] * 5))
    assert kinds(found) == ["input"]
    assert found.bound == "input"
    assert found.findings[0].gain_pct == pytest.approx(100 * 500 / 1510, abs=0.5)
    assert found.findings[0].confidence == "high"


def test_time_before_forward_without_an_operation_is_taken_for_input() -> None:
    found = diagnosis(two_ranks([{"unexplained": [500, 500], **MODEL}] * 5))
    assert kinds(found) == ["input"]
    assert found.findings[0].confidence == "medium"


def test_a_rank_whose_input_is_late_is_a_straggler() -> None:
    found = diagnosis(two_ranks([{"data": [50, 500], **MODEL}] * 5))
    assert kinds(found)[0] == "straggler-input"
    assert found.findings[0].where.ranks == [1]
    assert "waiting for rank 1" in found.verdict


def test_a_rank_that_pauses_within_each_step_is_a_straggler() -> None:
    steps = [{"forward": [300, 300], "unexplained": [20, 700], "backward": [600, 600]}] * 5
    found = diagnosis(two_ranks(steps))
    assert kinds(found) == ["straggler-host"]
    assert found.findings[0].gain_pct == pytest.approx(100 * 680 / 1710, abs=0.5)


def test_gaps_of_all_ranks_are_found() -> None:
    steps = [{"forward": [300, 300], "unexplained": [400, 400], "backward": [600, 600]}] * 5
    assert kinds(diagnosis(two_ranks(steps))) == ["host-gap"]


def test_a_rank_with_larger_batches_is_told_from_a_slow_one() -> None:
    found = diagnosis(two_ranks([{"forward": [300, 600], "backward": [600, 1200]}] * 5))
    assert kinds(found) == ["batch-imbalance"]
    # Balanced batches have the mean length.
    assert found.findings[0].gain_pct == pytest.approx(100 * 450 / 1910, abs=0.5)


def test_batches_of_varying_length_are_found() -> None:
    lengths = [(1, 3), (3, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)]
    steps = [{"forward": [100 * a, 100 * b], "backward": [200 * a, 200 * b]} for a, b in lengths]
    found = diagnosis(two_ranks(steps))
    assert kinds(found) == ["batch-imbalance"]
    assert found.findings[0].where.ranks == []


@pytest.mark.parametrize("every", [4, 7])
def test_regular_pauses_are_found_with_their_period(every: int) -> None:
    steps = [
        {"forward": [300 + 5000 * (i % every == 0), 300], "backward": [600, 600]}
        for i in range(1, 43)
    ]
    found = diagnosis(two_ranks(steps))
    pause = finding(found, "pause")
    assert found.findings[0] == pause
    figures = {one.name: one.value for one in pause.evidence}
    assert figures["steps from pause to pause"] == every
    paused = [i for i in range(1, 43) if i % every == 0]
    lost = len(paused) * 5000 / (42 * 1010 + len(paused) * 5000)
    assert pause.gain_pct == pytest.approx(100 * lost, abs=0.5)
    assert pause.where.ranks == [0]


def test_steps_that_become_slower_are_found() -> None:
    steps = [{"forward": [300 + 10 * i] * 2, "backward": [600 + 20 * i] * 2} for i in range(60)]
    assert "drift" in kinds(diagnosis(two_ranks(steps)))


def test_every_kind_is_examined_or_has_a_reason() -> None:
    found = diagnosis(synthetic(jitter=0.02))
    every = {kind for detector in DETECTORS for kind in detector.kinds}
    assert set(found.not_examined) <= every
    assert found.not_examined["slow-link"]
    assert all(found.not_examined.values())


def test_removals_never_lengthen_the_step() -> None:
    for seed in range(6):
        graph = synthetic(jitter=0.2, seed=seed, bandwidth="20Gbit/s", straggler=["1:1.2"], ranks=3)
        check_waterfall(diagnosis(graph))


def test_an_empty_graph_has_a_diagnosis() -> None:
    builder = GraphBuilder()
    rank = builder.rank()
    builder.op("nothing", kind=OpKind.OTHER, rank=rank, work_ns=0)
    found = diagnosis(builder.build())
    assert found.bound == "unknown"
    assert found.findings == []


def test_names_from_hostile_runs_are_escaped() -> None:
    builder = GraphBuilder()
    for i in range(2):
        rank = builder.rank(host="\x1b[31mhost")
        builder.op(
            "\x1b[2Jforward",
            kind=OpKind.FORWARD,
            rank=rank,
            resource=builder.resource("main thread", rank=rank),
            work_ns=1000 * (1 + 5 * i),
            layer="\x1b]0;title\x07",
            step=0,
        )
    text = str(augury.open(builder.build()).diagnose())
    assert "\x1b" not in text
    assert "\x07" not in text


def test_the_verb_and_the_call_give_the_same_document(tmp_path: Path, capsys: Any) -> None:
    from augury.cli.main import main

    path = tmp_path / "s.augury"
    augury.synth(path, ranks=2, steps=4, straggler=["1:1.5"])
    assert main(["diagnose", str(path), "--json"]) == 0
    assert capsys.readouterr().out.strip() == augury.open(path).diagnose().to_json()
    assert main(["diagnose", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Waterfall" in text
    assert "straggler-compute" in text
    assert "next: augury" in text
