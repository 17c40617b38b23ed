"""A small network with costs counted by hand."""

from __future__ import annotations

import numpy as np

from augury.core.cluster.cluster import Cluster, NetworkLevel
from augury.core.cluster.device import Device, Precision
from augury.core.model import LayerKind, Model, ModelLayer
from augury.oracle.feasibility import Judged, judge
from augury.oracle.fitting.corrections import BARE, Constants
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.registry import find_strategy
from augury.oracle.strategy import Options, StrategyCase

DEVICE = Device(
    name="plain",
    flops_per_s={Precision.FP32: 1e12, Precision.FP16: 4e12},
    memory_bandwidth_bytes_per_s=1e12,
    memory_bytes=1 << 40,
    compute_efficiency=1.0,
    memory_efficiency=1.0,
)
CLUSTER = Cluster(
    name="two levels",
    device=DEVICE,
    levels=(
        NetworkLevel(name="node", devices=4, latency_ns=1_000, bandwidth_bytes_per_s=10**10),
        NetworkLevel(
            name="network", devices=64, latency_ns=10_000, bandwidth_bytes_per_s=10**9, links=2
        ),
    ),
)


def convolution(name: str, channels: int, filters: int, extent: int, **more: object) -> ModelLayer:
    return ModelLayer(
        name=name,
        kind=LayerKind.CONVOLUTION,
        input_shape=(channels, extent, extent),
        output_shape=(filters, extent, extent),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1),
        num_parameters=9 * channels * filters,
        forward_flops=2_000_000,
        backward_flops=4_000_000,
        saved_items=channels * extent * extent,
        **more,  # type: ignore[arg-type]
    )


MODEL = Model(
    name="small",
    layers=(
        convolution("first", 3, 8, 16),
        convolution("second", 8, 16, 16),
        convolution("third", 16, 16, 16),
        ModelLayer(
            name="last",
            kind=LayerKind.LINEAR,
            input_shape=(16 * 16 * 16,),
            output_shape=(10,),
            num_parameters=16 * 16 * 16 * 10,
            forward_flops=1_000_000,
            backward_flops=2_000_000,
            saved_items=16 * 16 * 16,
        ),
    ),
    input_shape=(3, 16, 16),
)


def case(
    devices: list[int],
    batch: list[int],
    *,
    constants: Constants = BARE,
    model: Model = MODEL,
    cluster: Cluster = CLUSTER,
    **options: object,
) -> StrategyCase:
    return StrategyCase(
        work=LayerWork.of(model, cluster.described_device),
        cluster=cluster,
        constants=constants,
        options=Options(**options),  # type: ignore[arg-type]
        devices=np.array(devices, float),
        batch=np.array(batch, float),
    )


def judged(strategy: str, asked: StrategyCase) -> Judged:
    return judge(find_strategy(strategy).evaluate(asked), asked)
