"""The published ResNet-50 profile: tensors and bursts match it, and its table is complete."""

from __future__ import annotations

import json

import pytest
from benchmarks.schedule import published
from benchmarks.schedule.resnet50 import (
    BURST_MEGABYTES,
    BURSTS,
    GAPS_MS,
    LATER_GAPS_MS,
    profile,
    tensors,
)

from augury.core.plan.problem import Scheme
from augury.schedule.policies.prophet import Prophet


def test_the_architecture_has_the_published_tensors():
    layers = tensors()
    assert len(layers) == 157
    assert len({tensor.name for tensor in layers}) == 157
    assert round(4e-6 * sum(tensor.num_items for tensor in layers), 1) == 102.2
    # About 4.1 G multiplications an image, as is known of ResNet-50.
    assert round(1e-9 * sum(tensor.multiplications for tensor in layers), 1) == 4.1


@pytest.mark.parametrize(("burst", "megabytes"), [*zip(BURSTS, BURST_MEGABYTES, strict=True)])
def test_tensors_add_up_to_the_published_bytes_of_their_burst(
    burst: tuple[int, int], megabytes: float
):
    first, last = burst
    size_bytes = 4 * sum(tensor.num_items for tensor in tensors()[first : last + 1])
    assert round(size_bytes / 1e6, 2) == megabytes


@pytest.mark.parametrize(("gaps_ms", "whole_ms"), [(GAPS_MS, 584), (LATER_GAPS_MS, 196)])
def test_gaps_and_forward_are_the_published_ones(gaps_ms: tuple[int, ...], whole_ms: int):
    problem = profile(3, gaps_ms)
    assert sum(gaps_ms) == whole_ms
    assert problem.backward_ns == (gaps_ms[0] + whole_ms) * 1_000_000
    assert problem.forward_ns == pytest.approx(
        (gaps_ms[0] + whole_ms - gaps_ms[-1]) / 2 * 1_000_000, abs=len(gaps_ms)
    )
    assert problem.network.scheme is Scheme.PARAMETER_SERVER
    assert problem.network.ns_per_byte == pytest.approx(8 / 3)


def test_the_published_detector_finds_the_published_bursts():
    bursts = Prophet().bursts(profile(1))
    assert [(min(burst), max(burst)) for burst in bursts] == list(BURSTS)


def test_a_mispredicted_bandwidth_is_off_by_the_given_factor():
    problem = profile(2)
    assert (
        published.mispredicted(problem, 100).network.ns_per_byte == profile(4).network.ns_per_byte
    )
    assert (
        published.mispredicted(problem, -50).network.ns_per_byte == profile(1).network.ns_per_byte
    )


def test_ours_is_never_worse_by_more_than_one_per_cent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(published, "RATES_GBIT", (1.0, 3.0))
    monkeypatch.setattr(published, "MISPREDICTED_PCT", (-50, 100))
    assert published.main(["--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == 2 * 2 * 9
    assert all(row["gap_pct"] >= 0 for row in document["rows"])
    assert len(document["regrets"]) == 2 * 2 * 2 * 2
    assert document["ours_worse_at_most_pct"] <= 1


def test_a_table_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(published, "RATES_GBIT", (2.0,))
    monkeypatch.setattr(published, "MISPREDICTED_PCT", (25,))
    monkeypatch.setattr(published, "PROFILES", {"584 ms": GAPS_MS})
    assert published.main([]) == 0
    shown = capsys.readouterr().out
    assert "bytescheduler" in shown
    assert "+25 %" in shown
