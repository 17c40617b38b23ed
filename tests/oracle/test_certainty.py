"""The oracle warns where it extrapolates, and its confidence is lower there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from augury.core.model import LayerKind, Model, ModelLayer
from augury.oracle.feasibility import Judged
from augury.oracle.fitting.corrections import Constants
from augury.oracle.fitting.fit_corrections import fit_and_hold_out
from augury.oracle.fitting.held_out import Way, num_covered
from augury.oracle.fitting.published import PUBLISHED
from augury.oracle.layer_costs import LayerWork
from augury.oracle.recommend import interval_s, recommend_each
from augury.oracle.strategies.registry import STRATEGIES, find_strategy
from augury.oracle.sweep import Batch, sweep
from augury.oracle.uncertainty import warnings_of
from tests.oracle.published import ABCI, rows, works
from tests.oracle.small import CLUSTER, DEVICE, MODEL

KNOWN = Constants(
    spread={"data": 0.05, "filter": 0.1},
    unseen_spread=0.9,
    beyond_spread=0.15,
    max_devices={"data": 64, "filter": 16},
    layer_shares=LayerWork.of(MODEL, DEVICE).shares_by_kind,
    cluster=CLUSTER.name,
    device=CLUSTER.described_device.name,
)


def transformer() -> Model:
    layers = [
        ModelLayer(
            name=f"linear{i}",
            kind=LayerKind.LINEAR,
            input_shape=(512, 64),
            output_shape=(512, 64),
            num_parameters=512 * 512,
            forward_flops=2 * 64 * 512 * 512,
            backward_flops=4 * 64 * 512 * 512,
            saved_items=512 * 64,
        )
        for i in range(8)
    ]
    return Model(name="transformer", layers=tuple(layers), input_shape=(512, 64))


def judged(devices: list[int], *names: str, constants: Constants = KNOWN, model: Model = MODEL):
    strategies = [find_strategy(name) for name in names] if names else list(STRATEGIES)
    return sweep(
        LayerWork.of(model, DEVICE),
        CLUSTER,
        devices=devices,
        batch=Batch(per_device=64),
        strategies=strategies,
        constants=constants,
    )


def half_width(one: Judged, index: int = 0) -> float:
    low, high = interval_s(one, index)
    return math.log(high / low) / 2 / 1.645


def test_fitted_configurations_have_no_warnings() -> None:
    found = judged([4, 16], "data", "filter")
    assert warnings_of(found) == []
    assert half_width(found[0]) == pytest.approx(0.05)


def test_an_unfitted_strategy_is_a_warning() -> None:
    data, zero = judged([4], "data", "zero1")
    (said,) = warnings_of([data, zero])
    assert "never fitted: zero1" in said
    assert half_width(zero) == pytest.approx(0.9)


def test_scales_beyond_the_fitted_ones_are_a_warning() -> None:
    (one,) = judged([64, 128, 1024], "data")
    (said,) = warnings_of([one])
    assert "data: fitted up to 64 devices" in said
    widths = [half_width(one, index) for index in range(3)]
    expected = [math.hypot(0.05, 0.15 * doublings) for doublings in (0, 1, 4)]
    assert widths == pytest.approx(expected)


def test_another_device_is_a_warning() -> None:
    found = judged([4], "data", constants=replace(KNOWN, cluster="elsewhere", device="V100"))
    (said,) = warnings_of(found)
    assert "fitted on elsewhere (V100)" in said
    assert CLUSTER.described_device.name in said
    assert half_width(found[0]) > 0.2


def test_unfitted_kinds_of_layers_are_a_warning() -> None:
    constants = replace(KNOWN, layer_shares={"convolution": 0.9, "linear": 0.01})
    found = judged([4], "data", constants=constants, model=transformer())
    (said,) = warnings_of(found)
    assert "99 % of the compute" in said
    assert "linear" in said
    assert half_width(found[0]) > 0.4
    timed = tuple(replace(x, forward_s=1e-3, backward_s=2e-3) for x in transformer().layers)
    measured = judged([4], "data", constants=constants, model=replace(transformer(), layers=timed))
    assert warnings_of(measured) == []


def test_bare_equations_are_a_warning() -> None:
    (said,) = warnings_of(judged([4], "data", constants=Constants()))
    assert "nothing was fitted" in said


@pytest.mark.parametrize("constants", [KNOWN, PUBLISHED, replace(KNOWN, spread={"data": 0.0})])
def test_confidence_stays_below_100_pct(constants: Constants) -> None:
    for model in (MODEL, transformer()):
        for best in recommend_each(judged([2, 4, 8, 16], constants=constants, model=model)):
            assert best is None or best.confidence_pct is None or best.confidence_pct <= 99


def test_intervals_cover_nine_in_ten_held_out_rows() -> None:
    """Held-out rows of the published figure: other scales, whole strategies, and
    beyond 64 devices."""
    constants, held_out = fit_and_hold_out(rows("ResNet50"), works(), ABCI)
    assert [one.left_out for one in held_out if one.way is Way.STRATEGY] == [
        "data", "filter", "channel", "data_filter", "data_spatial",
    ]  # fmt: skip
    (beyond,) = (one for one in held_out if one.way is Way.BEYOND)
    assert min(row.devices for row in beyond.rows) > 64
    for way in Way:
        own = [one for one in held_out if one.way is way]
        covered = sum(num_covered(one, constants) for one in own)
        number = sum(len(one.rows) for one in own)
        assert 0.9 <= covered / number < 1, way
    # A strategy without data is predicted much worse, and a warning says so.
    assert constants.unseen_spread > 3 * max(constants.spread.values())
    for name in ("unseen_spread", "beyond_spread"):
        assert getattr(PUBLISHED, name) == pytest.approx(getattr(constants, name), rel=0.02)
    for name in ("spread", "max_devices", "layer_shares"):
        assert getattr(PUBLISHED, name) == pytest.approx(getattr(constants, name), rel=0.05)
