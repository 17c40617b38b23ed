from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from augury.core.errors import UsageError
from augury.oracle.feasibility import REASONS
from augury.oracle.fitting.corrections import BARE_SPREAD, Constants
from augury.oracle.layer_costs import LayerWork
from augury.oracle.recommend import interval_s, recommend, recommend_each
from augury.oracle.strategies.registry import find_strategy
from augury.oracle.strategy import LimitReason
from augury.oracle.sweep import Batch, parse_devices, sweep
from augury.oracle.uncertainty import DEVICE_SPREAD
from tests.oracle.small import CLUSTER, DEVICE, MODEL, case, judged


def _sweep(devices: list[int], batch: Batch, names: str = "data,zero1,filter", **more):
    return sweep(
        LayerWork.of(MODEL, DEVICE),
        CLUSTER,
        devices=devices,
        batch=batch,
        strategies=[find_strategy(name) for name in names.split(",")],
        **more,
    )


def test_devices():
    assert parse_devices("4:1024") == [4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert parse_devices("3:20") == [3, 6, 12, 20]
    assert parse_devices("5:5") == [5]
    assert parse_devices("8, 4,8") == [4, 8]
    for text in ("", "0:4", "8:4", "4:", "1.5", "-4", "4:8:16", "9999999999", "99999999", "²"):
        with pytest.raises(UsageError):
            parse_devices(text)


def test_batches():
    assert Batch(total=64).of(8) == 64
    assert Batch(per_device=64).of(8) == 512
    for stated in ({}, {"total": 1, "per_device": 1}, {"total": 0}, {"per_device": 1 << 40}):
        with pytest.raises(UsageError):
            Batch(**stated)


@pytest.mark.parametrize(
    ("strategy", "devices", "batch", "says"),
    [
        ("data", 16, 8, "at most 8 devices: one sample per device"),
        ("data", 16, 100, "the batch does not divide by the devices"),
        ("data", 128, 128, "two levels has 64 devices"),
        ("filter", 16, 8, "at most 8 devices: the fewest filters of a layer"),
        ("channel", 16, 8, "at most 8 devices: the fewest channels of a layer"),
        ("pipeline", 8, 8, "at most 4 devices: one layer per stage"),
        ("spatial", 17, 8, "the image cannot be cut into that many tiles"),
        ("data_filter", 6, 8, "the devices do not divide into groups of 4"),
        ("data_filter", 16, 6, "the batch does not divide by the groups of 4"),
        ("data_spatial", 64, 8, "at most 32 devices: one sample per group"),
    ],
)
def test_infeasible_configurations_state_the_reason(
    strategy: str, devices: int, batch: int, says: str
):
    found = judged(strategy, case([devices], [batch]))
    assert not found.feasible[0]
    assert says in (found.why(0) or "")
    assert REASONS[found.bottleneck[0]] is LimitReason.COUNT


def test_memory_is_a_limit():
    (found,) = _sweep([4], Batch(total=1024), "data", memory_limit_bytes=1 << 20)
    assert not found.feasible[0]
    assert "of 1.05 MB per device" in (found.why(0) or "")
    assert REASONS[found.bottleneck[0]] is LimitReason.MEMORY
    (roomy,) = _sweep([4], Batch(total=1024), "data")
    assert roomy.why(0) is None
    assert roomy.limit(0) == "1,024 devices: one sample per device"


@pytest.mark.parametrize(
    ("strategy", "devices", "batch", "more", "reason"),
    [
        ("data", 64, 64, {}, LimitReason.GRADIENT),
        ("filter", 8, 8, {}, LimitReason.LAYERWISE),
        ("spatial", 4, 4000, {"constants": Constants(staging_s_per_byte=1e-7)}, LimitReason.HALO),
        ("data", 1, 10_000, {}, LimitReason.NONE),
        ("pipeline", 4, 4, {}, LimitReason.POINT_TO_POINT),
        ("filter", 4, 4000, {"constants": Constants(filter_redundancy=3)}, LimitReason.REDUNDANCY),
        ("zero3", 4, 4, {}, LimitReason.GATHER),
    ],
)
def test_bottlenecks_have_names(strategy: str, devices: int, batch: int, more, reason: LimitReason):
    found = judged(strategy, case([devices], [batch], **more))
    assert REASONS[found.bottleneck[0]] is reason


def test_stages_that_differ_are_a_bottleneck():
    fast = replace(
        CLUSTER,
        levels=tuple(
            replace(level, latency_ns=0, bandwidth_bytes_per_s=10**15) for level in CLUSTER.levels
        ),
    )
    found = judged("pipeline", case([3], [3000], cluster=fast))
    assert REASONS[found.bottleneck[0]] is LimitReason.IMBALANCE


def test_reading_samples_may_be_slower_than_a_step():
    slow = replace(CLUSTER, input_bandwidth_bytes_per_s=1e6)
    found = judged("data", case([4], [4000], cluster=slow))
    assert REASONS[found.bottleneck[0]] is LimitReason.INPUT
    assert found.step_s[0] == pytest.approx(4000 * 3 * 16 * 16 * 4 / 1e6)


def test_crossing_switches_adds_waiting():
    three = replace(
        CLUSTER,
        levels=(*CLUSTER.levels, replace(CLUSTER.levels[1], name="more", devices=4096)),
    )
    constants = Constants(crossing_s=0.1)
    found = judged("data", case([64, 128], [1280, 1280], cluster=three, constants=constants))
    assert found.estimate.waiting_s.tolist() == [0, 0.1]
    assert REASONS[found.bottleneck[1]] is LimitReason.CONGESTION


def test_nearly_full_memory_is_named():
    (found,) = _sweep([1], Batch(total=100_000), "data")
    tight = float(found.memory_bytes[0]) * 1.01
    (found,) = _sweep([1], Batch(total=100_000), "data", memory_limit_bytes=tight)
    assert found.feasible[0]
    assert REASONS[found.bottleneck[0]] is LimitReason.FRAGMENTATION


def test_of_equal_strategies_the_simplest_is_chosen():
    found = _sweep([4], Batch(total=100_000), "data,zero1,pipeline")
    best = recommend(found)
    assert best is not None
    assert best.strategy == "data"
    assert best.alike == ("zero1",)
    assert best.runner_up == "pipeline"
    assert best.margin_pct is not None
    assert best.margin_pct > 1
    assert best.confidence_pct is not None
    assert 50 < best.confidence_pct < 100


def test_without_feasible_rows_nothing_is_recommended():
    found = _sweep([3, 128], Batch(total=100), "data")
    assert recommend_each(found) == [None, None]
    assert recommend(found) is None


def test_a_single_strategy_has_no_margin():
    (best,) = recommend_each(_sweep([4], Batch(total=64), "data"))
    assert best is not None
    assert (best.runner_up, best.margin_pct, best.confidence_pct) == (None, None, None)


def test_the_fastest_number_of_devices_is_recommended():
    found = _sweep([1, 2, 4, 8, 16, 32, 64], Batch(total=6400), "data")
    best = recommend(found)
    assert best is not None
    steps = found[0].step_s
    assert best.devices == [1, 2, 4, 8, 16, 32, 64][int(np.argmin(steps))]


def test_intervals_widen_with_uncertainty():
    constants = Constants(spread={"data": 0.1, "filter": 0.3}, cluster=CLUSTER.name)
    data, filters, zero = _sweep([4], Batch(total=64), "data,filter,zero1", constants=constants)
    for one, spread in ((data, 0.1), (filters, 0.3), (zero, 0.3)):
        low, high = interval_s(one, 0)
        assert math.log(high / low) == pytest.approx(2 * 1.645 * spread)
    elsewhere = replace(constants, cluster="another")
    (data,) = _sweep([4], Batch(total=64), "data", constants=elsewhere)
    low, high = interval_s(data, 0)
    assert math.log(high / low) == pytest.approx(2 * 1.645 * math.hypot(0.1, DEVICE_SPREAD))
    (bare,) = _sweep([4], Batch(total=64), "data")
    low, high = interval_s(bare, 0)
    assert math.log(high / low) == pytest.approx(2 * 1.645 * BARE_SPREAD)


def test_layers_that_were_measured_go_first():
    measured = replace(
        MODEL,
        layers=tuple(
            replace(layer, forward_s=1.0, backward_s=2.0, update_s=3.0) for layer in MODEL.layers
        ),
    )
    work = LayerWork.of(measured, DEVICE)
    assert work.sample_s == 12
    assert work.total_update_s == 12
    assert work.anchored(6.0).sample_s == pytest.approx(6)
