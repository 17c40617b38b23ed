"""Prediction of all strategies at all scales in one call, from a model and a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from augury.build.pipeline_order import PipelineSchedule
from augury.core.cluster.cluster import Cluster
from augury.core.cluster.device import Precision
from augury.core.errors import UsageError
from augury.core.graph.graph import Graph
from augury.core.model import Model
from augury.core.progress import Progress, silent
from augury.core.results.oracle import OracleResult
from augury.executor import EngineName, Executor
from augury.oracle.feasibility import Judged
from augury.oracle.fitting.corrections import Constants
from augury.oracle.fitting.published import find_constants
from augury.oracle.graphs.replay_sweep import replay_each
from augury.oracle.graphs.strategy_graph import strategy_graph
from augury.oracle.layer_costs import LayerWork
from augury.oracle.measured_cluster import measured_cluster
from augury.oracle.memory import Optimizer
from augury.oracle.model_reader.model_from_run import with_times
from augury.oracle.model_reader.read_model import load_model, read_module
from augury.oracle.strategies.registry import STRATEGIES, find_strategy
from augury.oracle.strategy import Options, Strategy
from augury.oracle.sweep import Batch, parse_devices, sweep
from augury.oracle.sweep_result import sweep_result

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True, eq=False)
class StrategyPrediction:
    """Predictions of a sweep: the result, and the graph where there is one configuration."""

    result: OracleResult
    judged: list[Judged]
    strategies: list[Strategy]

    def graph(self) -> Graph:
        """Returns the graph of the only configuration, with up to 64 devices written out."""
        _require_one_configuration(len(self.strategies) * len(self.judged[0].case.devices))
        return strategy_graph(self.strategies[0], self.judged[0].case, whole=True)


def predict_strategies(
    model: str | os.PathLike[str] | Model | nn.Module,
    cluster: str | os.PathLike[str] | Cluster,
    *,
    devices: str | Sequence[int] = "4:1024",
    global_batch: int | None = None,
    batch_per_device: int | None = None,
    input_shapes: Sequence[str] = (),
    times: Path | None = None,
    times_batch: int | None = None,
    collectives: Path | None = None,
    samples: int | None = None,
    strategies: str | Sequence[str] = "all",
    memory_limit_bytes: int | None = None,
    precision: str = "fp32",
    optimizer: str = "momentum",
    recompute: bool = False,
    overlap: float = 0.0,
    group: int | None = None,
    micro_batches: int | None = None,
    schedule: str = "1f1b",
    chunks: int = 2,
    constants: str | Constants = "published",
    fidelity: Literal["closed", "replay"] = "closed",
    one_configuration: bool = False,
    engine: EngineName = "processes",
    address: str | None = None,
    jobs: int | None = None,
    progress: Progress = silent,
) -> StrategyPrediction:
    """Predicts time and memory of each strategy on each number of devices.

    ``devices`` is ``"4:1024"`` (doublings), ``"4,6,8"`` or a list; ``strategies`` is ``"all"``,
    ``"data,zero3"`` or a list. Give either ``global_batch`` or ``batch_per_device``. ``constants``
    are ``"published"``, ``"bare"``, the path of a JSON file, or fitted ones. ``samples`` is the
    size of an epoch. With ``one_configuration``, more than one is refused before any work.
    ``engine``, ``address`` and ``jobs`` state where replays run, as in ``augury.executor``.
    """
    executor = Executor(engine=engine, address=address, jobs=jobs)
    batch = Batch(total=global_batch, per_device=batch_per_device)
    numbers = parse_devices(devices if isinstance(devices, str) else ",".join(map(str, devices)))
    chosen = _find_strategies(strategies)
    if one_configuration:
        _require_one_configuration(len(chosen) * len(numbers))
    described = measured_cluster(cluster, collectives)
    known = find_constants(constants) if isinstance(constants, str) else constants
    computed_in = Precision(precision)
    described.described_device.reached_flops_per_s(computed_in)  # refused before a model is read
    name = model if isinstance(model, str | os.PathLike) else type(model).__name__
    with progress(f"reading {name}"):
        found = with_times(_read(model, input_shapes), times, times_batch)
    copies = Optimizer(optimizer).state_items
    judged = sweep(
        LayerWork.of(found, described.described_device, computed_in, optimizer_copies=copies),
        described,
        devices=numbers,
        batch=batch,
        strategies=chosen,
        constants=known,
        options=Options(
            group=group,
            micro_batches=micro_batches,
            schedule=PipelineSchedule(schedule),
            chunks=chunks,
            overlap=overlap,
            recompute=recompute,
            optimizer_copies=copies,
            is_bare=constants == "bare",
        ),
        memory_limit_bytes=memory_limit_bytes,
    )
    notes: list[str] = []
    if fidelity == "replay":
        judged, notes = replay_each(judged, chosen, executor, progress=progress)
    return StrategyPrediction(
        result=sweep_result(judged, samples=samples, notes=notes), judged=judged, strategies=chosen
    )


def _find_strategies(names: str | Sequence[str]) -> list[Strategy]:
    if names == "all":
        return list(STRATEGIES)
    listed = names.split(",") if isinstance(names, str) else names
    return [find_strategy(name) for name in dict.fromkeys(listed)]


def _read(model: str | os.PathLike[str] | Model | nn.Module, input_shapes: Sequence[str]) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike):
        return load_model(os.fspath(model), input_shapes=input_shapes)
    return read_module(model, input_shapes)


def _require_one_configuration(number: int) -> None:
    if number != 1:
        raise UsageError(
            "a graph is of one configuration",
            remedy="name one --strategy and one number of --devices",
        )
