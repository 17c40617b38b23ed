"""Pipeline parallelism: stages of layers, and a batch in micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.columns import F8
from augury.core.graph.graph import Graph
from augury.costs.closed_forms import point_to_point_s
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategies.pipeline_graph import pipeline_graph
from augury.oracle.strategies.pipeline_stages import micro_batches, stages_of
from augury.oracle.strategy import (
    CostPart,
    Estimate,
    LimitReason,
    StrategyCase,
    sample_compute_s,
    waiting_s,
)


@dataclass(frozen=True)
class Pipeline:
    name: str = "pipeline"
    has_bubbles: bool = True

    def graph(self, case: StrategyCase, meta: dict[str, str], *, whole: bool) -> Graph:  # noqa: ARG002
        """Returns the graph of all devices: they differ."""
        return pipeline_graph(case, meta)

    def evaluate(self, case: StrategyCase) -> Estimate:
        devices, batch, work = case.devices, case.batch, case.work
        numbers, where = np.unique(devices, return_inverse=True)
        stages = [stages_of(work, int(number)) for number in numbers]

        def of_stages(name: str) -> F8:
            return np.array([getattr(one, name) for one in stages], float)[where]

        micro = micro_batches(case)
        is_interleaved = case.options.schedule == "interleaved"
        chunks = np.where(devices > 1, case.options.chunks if is_interleaved else 1, 1)
        ratio = sample_compute_s(case) / work.sample_s
        slowest_s = ratio * of_stages("slowest_s")
        # With fewer micro-batches than devices, a chunk waits until all devices had one.
        idle = devices - 1 + (chunks - 1) * np.maximum(0.0, devices - micro)
        fill = idle / (micro * chunks)
        update_s = of_stages("update_s")
        compute_s = batch * (1 + fill) * slowest_s + update_s
        even_s = batch * ratio * work.sample_s / devices
        cluster = case.cluster
        level = case.level
        size_bytes = batch / micro * of_stages("boundary_items") * work.precision.item_bytes
        hops = np.maximum(0.0, devices + micro - 2) * chunks
        alpha, beta = cluster.latency_s(level), cluster.seconds_per_byte(level)
        time_s = np.where(devices > 1, 2 * hops * point_to_point_s(size_bytes, alpha, beta), 0.0)
        return Estimate(
            strategy=self.name,
            axes={"pipeline": devices, "micro_batches": micro},
            compute_s=compute_s,
            parts=[
                CostPart(
                    reason=LimitReason.POINT_TO_POINT,
                    collective="send",
                    size_bytes=2 * size_bytes * micro,
                    group=np.minimum(devices, 2.0),
                    level=level,
                    time_s=time_s,
                    exposed_s=time_s,
                )
            ],
            waiting_s=waiting_s(case),
            memory_bytes=_memory(case, of_stages, micro),
            max_devices=np.full_like(devices, len(work.model.layers)),
            limit="one layer per stage",
            losses={
                LimitReason.IMBALANCE: compute_s - even_s - update_s,
                LimitReason.UPDATE: update_s,
            },
            refusals=[
                (np.mod(batch, micro) != 0, "the batch does not divide into the micro-batches"),
            ],
        )


def _memory(case: StrategyCase, of_stages: object, micro: F8) -> dict[str, F8]:
    """1F1B holds as many micro-batches of the first stage as there are stages; GPipe holds all."""
    assert callable(of_stages)
    work, options = case.work, case.options
    item_bytes = work.precision.item_bytes
    held: F8 = WEIGHT_BYTES * of_stages("parameters")
    in_flight = micro if options.schedule == "gpipe" else np.minimum(micro, case.devices)
    if options.schedule == "interleaved":
        in_flight = np.minimum(micro, case.devices + (case.devices - 1) / options.chunks)
    samples = case.batch * in_flight / micro
    if options.is_bare:
        touched: F8 = of_stages("touched_items")
        kept = 2 * case.constants.memory_reuse * item_bytes * case.batch * touched
        return {"parameters": held, "gradients": held, "activations": kept}
    saved: F8 = of_stages("restart_items" if options.recompute else "saved_items")
    transient: F8 = case.batch / micro * item_bytes * of_stages("largest_items")
    return {
        "parameters": held,
        "gradients": held,
        "optimizer": options.optimizer_copies * held,
        "activations": case.constants.memory_reuse * item_bytes * samples * saved,
        "transient": transient,
    }
