"""Rate at which the oracle judges configurations, per CPU second: in one sweep, and one at a time.

A configuration is a strategy, a number of devices and a batch. Judging it gives its time, its
communications, its memory, its feasibility and its bottleneck.

    python -m benchmarks.oracle.sweep

A sweep is measured cold: it is the first one of a fresh process, and it includes finding the
cluster, building the model and adding up its layers. Only the imports before it are excluded.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from augury.core.cluster.cluster_file import find_cluster
from augury.core.model import LayerKind, Model, ModelLayer
from augury.oracle.feasibility import judge
from augury.oracle.fitting.published import PUBLISHED
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategies.registry import STRATEGIES
from augury.oracle.strategy import Options, StrategyCase
from benchmarks.measure import at_least, at_most, cpu_seconds, cpu_seconds_of_command, report, say

CLUSTER = find_cluster("abci")
ROUNDS = 7
NUM_SINGLE = 200


def main() -> int:
    spent_s, num_swept = cold_sweep()
    each = one_by_one(LayerWork.of(deep_model(), CLUSTER.described_device))
    held = [
        report("oracle_sweep_per_s", num_swept / spent_s, "1/s", at_least(100_000), num=num_swept),
        report("oracle_single_per_s", per_second(*each), "1/s", at_least(3_000), num=each[1]),
    ]
    held += from_module_to_table()
    return 0 if all(held) else 5


def cold_sweep() -> tuple[float, int]:
    """Returns the median CPU seconds of a sweep in a fresh process, and its number of
    configurations."""
    spent: list[float] = []
    num = 0
    for _ in range(ROUNDS):
        said = subprocess.run(
            [sys.executable, "-m", "benchmarks.oracle.sweep", "--cold"],
            check=True,
            stdout=subprocess.PIPE,
        )
        seconds, num = json.loads(said.stdout)
        spent.append(seconds)
    return statistics.median(spent), num


def sweep_once() -> int:
    """Entry point of the process that ``cold_sweep`` starts."""
    begin = time.process_time()
    run, num = all_at_once(LayerWork.of(deep_model(), find_cluster("abci").described_device))
    run()
    print(json.dumps([time.process_time() - begin, num]))
    return 0


def from_module_to_table() -> list[bool]:
    """Times ResNet-50 from its ``nn.Module``, all strategies at all scales, including the start of
    Python."""
    if importlib.util.find_spec("torch") is None:
        say("torch is not installed: skipping models from modules")
        return []
    asked = ["--model", "resnet50", "--cluster", "abci", "--global-batch", "1024"]
    spent_s = cpu_seconds_of_command(sys.executable, "-m", "augury", "oracle", *asked, rounds=3)
    return [report("oracle_resnet50_cpu", spent_s, "s", at_most(10))]


def per_second(run: Callable[[], object], number: int) -> float:
    run()
    return number / statistics.median(cpu_seconds(run) for _ in range(ROUNDS))


def all_at_once(work: LayerWork) -> tuple[Callable[[], object], int]:
    case = make_case(work)

    def run() -> None:
        for strategy in STRATEGIES:
            judge(strategy.evaluate(case), case)

    return run, len(STRATEGIES) * len(case.devices)


def one_by_one(work: LayerWork) -> tuple[Callable[[], object], int]:
    case = make_case(work)
    singles = [
        make_case(work, case.devices[i : i + 1], case.batch[i : i + 1]) for i in range(NUM_SINGLE)
    ]

    def run() -> None:
        for single in singles:
            for strategy in STRATEGIES:
                judge(strategy.evaluate(single), single)

    return run, len(STRATEGIES) * NUM_SINGLE


def make_case(
    work: LayerWork,
    devices: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None,
    batch: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None,
) -> StrategyCase:
    """Batch sizes; by default 256 of them for each of 9 device counts."""
    if devices is None or batch is None:
        grid = np.meshgrid(2.0 ** np.arange(2, 11), 64.0 * np.arange(1, 257))
        devices, batch = (axis.ravel() for axis in grid)
    return StrategyCase(
        work=work,
        cluster=CLUSTER,
        constants=PUBLISHED,
        options=Options(),
        devices=devices,
        batch=batch,
    )


def deep_model(num_blocks: int = 53) -> Model:
    """Builds a model with as many layers as ResNet-50, without the framework that reads it."""
    layers = []
    for block in range(num_blocks):
        channels, extent = 64 << (4 * block // num_blocks), 56 >> (4 * block // num_blocks)
        shape = (channels, extent, extent)
        items = channels * extent * extent
        flops = 2 * 9 * channels * items
        layers.append(
            ModelLayer(
                name=f"conv{block}",
                kind=LayerKind.CONVOLUTION,
                input_shape=shape,
                output_shape=shape,
                kernel=(3, 3),
                stride=(1, 1),
                padding=(1, 1),
                num_parameters=9 * channels * channels,
                forward_flops=flops,
                backward_flops=2 * flops,
                forward_items=2 * items,
                backward_items=4 * items,
                saved_items=items,
            )
        )
        for kind in (LayerKind.NORMALISATION, LayerKind.ELEMENTWISE):
            layers.append(
                ModelLayer(
                    name=f"{kind}{block}",
                    kind=kind,
                    input_shape=shape,
                    output_shape=shape,
                    num_parameters=2 * channels if kind is LayerKind.NORMALISATION else 0,
                    forward_items=2 * items,
                    backward_items=3 * items,
                    saved_items=items,
                )
            )
    return Model(name="deep", layers=tuple(layers), input_shape=(64, 56, 56))


if __name__ == "__main__":
    sys.exit(sweep_once() if "--cold" in sys.argv else main())
