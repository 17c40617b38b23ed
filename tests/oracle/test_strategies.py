"""Every strategy compared with the published table, written out for one configuration."""

from __future__ import annotations

import numpy as np
import pytest

from augury.core.errors import UsageError
from augury.core.model import Model
from augury.oracle.fitting.corrections import BARE, Constants
from augury.oracle.strategies.pipeline_stages import stages_of
from augury.oracle.strategies.registry import STRATEGIES, find_strategy
from augury.oracle.strategies.tiling import tiling_of
from augury.oracle.strategy import LimitReason
from tests.oracle.small import MODEL, case, convolution, judged

ALPHA, BETA = (1e-6, 1e-5), (1e-10, 1e-9)
"""Links inside a node, and between nodes."""
SAMPLE_S = (3 * 6e6 + 3e6) / 1e12
WEIGHTS = 9 * (3 * 8 + 8 * 16 + 16 * 16) + 40960
UPDATE_S = WEIGHTS * 4 * 5 / 1e12
OUTPUTS = (8 + 16 + 16) * 256
"""Outputs of all layers but the last."""


def _step(strategy: str, devices: int, batch: int, **options: object) -> float:
    asked = case([devices], [batch], is_bare=True, **options)
    return float(find_strategy(strategy).evaluate(asked).step_s[0])


def _ring(p: int, size: float, level: int, messages: int = 1) -> float:
    return 2 * (p - 1) * (messages * ALPHA[level] + size * BETA[level] / p)


def test_data():
    expected = 8 / 4 * SAMPLE_S + UPDATE_S + _ring(4, 4 * WEIGHTS, 0)
    assert _step("data", 4, 8) == pytest.approx(expected)


def test_data_across_nodes():
    expected = 2 * SAMPLE_S + UPDATE_S + _ring(8, 4 * WEIGHTS, 1)
    assert _step("data", 8, 16) == pytest.approx(expected)


@pytest.mark.parametrize("strategy", ["filter", "channel"])
def test_filter_and_channel(strategy: str):
    each = sum(ALPHA[1] + 8 * items * 4 * BETA[1] / 8 for items in (2048, 4096, 4096))
    expected = 8 / 8 * SAMPLE_S + UPDATE_S / 8 + 3 * 7 * each
    assert _step(strategy, 8, 8) == pytest.approx(expected)


def test_data_and_filter():
    each = sum(ALPHA[0] + 16 * items * 4 * BETA[0] / 8 for items in (2048, 4096, 4096))
    expected = (
        16 / 8 * SAMPLE_S
        + UPDATE_S / 4
        + 3 * 3 * each
        + 2 * 1 * (ALPHA[1] + 4 * WEIGHTS * BETA[1] / 8)
    )
    assert _step("data_filter", 8, 16) == pytest.approx(expected)


def _halo(cut_both: bool) -> float:
    """Halos of one row or column, of inputs and of outputs' gradients."""
    channels = (3 + 8) + (8 + 16) + (16 + 16)
    return channels * (8 + 8 if cut_both else 16)


def test_spatial():
    halo = 2 * (3 * 2 * ALPHA[0] + 8 * _halo(cut_both=True) * 4 * BETA[0])
    expected = 8 / 4 * SAMPLE_S + UPDATE_S + _ring(4, 4 * WEIGHTS, 0) + halo
    assert _step("spatial", 4, 8) == pytest.approx(expected)


def test_data_and_spatial():
    halo = 2 * (3 * 2 * ALPHA[0] + 8 * _halo(cut_both=True) * 4 * BETA[0])
    inside, between = _ring(4, 4 * WEIGHTS, 0), _ring(2, 4 * WEIGHTS, 1)
    expected = 16 / 8 * SAMPLE_S + UPDATE_S + halo + inside + between
    assert _step("data_spatial", 8, 16) == pytest.approx(expected)


def test_pipeline():
    # Two stages of two layers each; the widest cut is behind the second layer.
    slowest = (2 * 2e6 + 2 * 4e6) / 1e12
    sends = 2 * (2 + 4 - 2) * (ALPHA[0] + 8 / 4 * 4096 * 4 * BETA[0])
    update = (9 * 16 * 16 + 40960) * 4 * 5 / 1e12
    expected = 8 * (2 + 4 - 1) / 4 * slowest + update + sends
    assert _step("pipeline", 2, 8, micro_batches=4) == pytest.approx(expected)


def test_interleaving_shortens_the_bubble_and_sends_more():
    plain = find_strategy("pipeline").evaluate(case([4], [8], micro_batches=4))
    mixed = find_strategy("pipeline").evaluate(
        case([4], [8], micro_batches=4, schedule="interleaved")
    )
    assert mixed.compute_s < plain.compute_s
    assert mixed.comm_s == pytest.approx(2 * plain.comm_s)


def test_zero_shards_the_state_of_its_stage():
    data, *stages = (
        find_strategy(name).evaluate(case([4], [8])) for name in ("data", "zero1", "zero2", "zero3")
    )
    for kind, since in (("optimizer", 1), ("gradients", 2), ("parameters", 3)):
        for stage, one in enumerate(stages, start=1):
            share = 4 if stage >= since else 1
            assert one.memory_bytes[kind] == pytest.approx(data.memory_bytes[kind] / share)
    assert [part.collective for part in stages[0].parts] == ["reduce-scatter", "all-gather"]
    # Scattering and gathering is what an all-reduce does; the third stage gathers once more.
    assert stages[0].comm_s == pytest.approx(data.comm_s)
    assert stages[2].comm_s > 1.4 * data.comm_s


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_batched_and_single_evaluations_agree(strategy):
    numbers, batches = [1, 4, 8, 16, 64], [64, 64, 128, 32, 64]
    constants = Constants(
        filter_redundancy=0.5, piece_s=1e-6, gradient_contention=2, crossing_s=1e-3
    )
    whole = judged(strategy.name, case(numbers, batches, constants=constants))
    for i, (devices, batch) in enumerate(zip(numbers, batches, strict=True)):
        one = judged(strategy.name, case([devices], [batch], constants=constants))
        assert one.step_s[0] == pytest.approx(whole.step_s[i])
        assert one.memory_bytes[0] == pytest.approx(whole.memory_bytes[i])
        assert one.feasible[0] == whole.feasible[i]
        assert one.why(0) == whole.why(i)
        assert one.bottleneck[0] == whole.bottleneck[i]


@pytest.mark.parametrize("name", ["data", "zero3", "spatial", "pipeline", "filter", "channel"])
def test_one_device_is_serial(name: str):
    found = judged(name, case([1], [8]))
    assert found.step_s[0] == pytest.approx(8 * SAMPLE_S + UPDATE_S)
    assert found.comm_s[0] == 0


def test_memory_of_the_published_table():
    touched = sum(
        int(np.prod(layer.input_shape)) + int(np.prod(layer.output_shape)) for layer in MODEL.layers
    )
    for name, samples, weights, items in (
        ("data", 2, 1, 1),
        ("spatial", 8, 1, 1 / 4),
        ("filter", 8, 1 / 4, 1),
        ("data_filter", 8, 1 / 4, 1),
        ("data_spatial", 8, 1, 1 / 4),
    ):
        found = find_strategy(name).evaluate(case([4], [8], is_bare=True))
        expected = 2 * 4 * (samples * items * touched + weights * WEIGHTS)
        assert found.total_memory_bytes[0] == pytest.approx(expected), name


def test_recomputing_trades_time_for_memory():
    layers = tuple(convolution(f"layer {i}", 16, 16, 16) for i in range(25))
    deep = Model(name="deep", layers=layers, input_shape=(16, 16, 16))
    plain, again = (
        judged("data", case([4], [512], model=deep, recompute=recompute))
        for recompute in (False, True)
    )
    assert again.compute_s > plain.compute_s
    assert again.estimate.memory_bytes["activations"] < plain.estimate.memory_bytes["activations"]


def test_gradients_hide_behind_backward():
    plain, hidden = (judged("data", case([8], [8000], overlap=share)) for share in (0.0, 1.0))
    assert hidden.comm_s == plain.comm_s
    assert 0 < hidden.exposed_comm_s < plain.exposed_comm_s


def test_parameters_hide_behind_forward_and_gradients_behind_backward():
    """The same compute hides only one of them: the excess is exposed."""
    asked = case([8], [8], overlap=1.0)
    plain, hidden = (find_strategy("zero3").evaluate(one) for one in (case([8], [8]), asked))
    saved_s = plain.exposed_comm_s - hidden.exposed_comm_s
    assert saved_s == pytest.approx(hidden.compute_s)


def test_interleaving_few_micro_batches_stalls():
    """A chunk's turn comes after all devices had one, even with few micro-batches."""
    one = find_strategy("pipeline").evaluate(
        case([4], [2], micro_batches=2, schedule="interleaved")
    )
    each_s = stages_of(case([4], [2]).work, 4).slowest_s
    assert one.compute_s - 16 * 16 * 16 * 10 * 20e-12 == pytest.approx(9 / 2 * each_s, rel=1e-3)


def test_concurrent_rings_share_links():
    """Four rings leave a node that has two links."""
    bare, shared = (
        find_strategy("data_filter").evaluate(case([8], [16], is_bare=is_bare)).parts[-1]
        for is_bare in (True, False)
    )
    assert shared.reason is LimitReason.GRADIENT
    latency_s = 2 * ALPHA[1]
    assert shared.time_s - latency_s == pytest.approx(2 * (bare.time_s - latency_s))


def test_images_are_cut_where_little_crosses():
    work = case([1], [1]).work
    assert tiling_of(work, 4).cuts == (2, 2)
    assert tiling_of(work, 2).num_exchanges == 3
    assert not tiling_of(work, 17).fits
    assert tiling_of(work, 256).fits


def test_stages_are_balanced():
    work = case([1], [1]).work
    assert stages_of(work, 4).slowest_s == pytest.approx(6e-6)
    assert stages_of(work, 1).slowest_s == pytest.approx(SAMPLE_S)
    assert stages_of(work, 3).slowest_s == pytest.approx(9e-6)


def test_constants_are_neutral():
    assert Constants() == BARE
    asked = case([8], [16])
    for strategy in STRATEGIES:
        assert np.all(strategy.evaluate(asked).waiting_s == 0)


def test_names():
    assert find_strategy("ds").name == "data_spatial"
    assert find_strategy("Data-Filter").name == "data_filter"
    with pytest.raises(UsageError, match="no strategy"):
        find_strategy("tensor")
