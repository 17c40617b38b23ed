"""Spaces of synthetic models: which modules are compiled, and how large buckets are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from augury.build.recorded.training_facts import TrainingFacts
from augury.build.synthetic.layers import Layer, ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.cluster.cluster import Cluster, Link
from augury.core.columns import I8
from augury.core.graph.graph import Graph
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection
from augury.core.trace.module_timing import AS_RECORDED, COMPILED, ModuleTiming
from augury.costs.module_costs import ModuleCosts
from augury.optimize.search import SearchOptions
from augury.optimize.section_decisions import section_decisions
from augury.optimize.space import Candidate, Decision, Evaluated
from augury.passes.protocol import Scene
from augury.passes.sections.module_tree import outer_paths
from augury.passes.sections.step_structure import step_structure
from augury.predict.plan_prediction import with_sections
from augury.replay.run import replay
from augury.replay.session import ReplaySession

MIB = 1 << 20
BUCKET_BYTES = tuple(MIB * size for size in (25, 4, 8, 12, 16, 50, 100))
NETWORK = Link(latency_ns=20_000, bandwidth_bytes_per_s=3_000_000_000, overhead_ns=10_000)
RESNET_BLOCKS = (3, 4, 6, 3)


def resnet_like() -> tuple[Layer, ...]:
    """53 convolutions in 16 blocks of four stages."""
    names = ["stem"]
    for stage, number in enumerate(RESNET_BLOCKS):
        for block in range(number):
            parts = ("a", "b", "c", "down") if block == 0 else ("a", "b", "c")
            names += [f"stage{stage}.{block}.{part}" for part in parts]
    names.append("head")
    found = conv_layers(ModelSize(num_layers=len(names), parameter_bytes=102_000_000))
    return tuple(replace(layer, name=name) for layer, name in zip(found, names, strict=True))


def bert_like() -> tuple[Layer, ...]:
    """An embedding, and 12 blocks of six layers, all alike."""
    weights = {"query": 1, "key": 1, "value": 1, "out": 1, "up": 4, "down": 4}
    unit = Layer(
        name="",
        parameter_bytes=2_360_000,
        saved_bytes=20_000_000,
        output_bytes=6_000_000,
        forward_ns=400_000,
        backward_ns=800_000,
        update_ns=50_000,
    )
    blocks = [
        _times(unit, weight, f"block{block}.{part}")
        for block in range(12)
        for part, weight in weights.items()
    ]
    embedding = replace(_times(unit, 1, "embedding"), parameter_bytes=95_000_000)
    return (embedding, *blocks)


MODELS = {"resnet": resnet_like, "bert": bert_like}


def _times(layer: Layer, factor: int, name: str) -> Layer:
    return Layer(
        name=name,
        parameter_bytes=layer.parameter_bytes * factor,
        saved_bytes=layer.saved_bytes * factor,
        output_bytes=layer.output_bytes,
        forward_ns=layer.forward_ns * factor,
        backward_ns=layer.backward_ns * factor,
        update_ns=layer.update_ns * factor,
    )


class SyntheticSpace:
    """Each size of buckets is a graph of its own; compiled modules change its durations."""

    def __init__(self, model: str, options: SearchOptions, *, num_ranks: int = 16) -> None:
        self._layers, self._options, self._num_ranks = MODELS[model](), options, num_ranks
        self._sessions: dict[int, ReplaySession] = {}
        self._scenes: dict[int, Scene] = {}
        self._deltas: dict[tuple[int, int], I8] = {}

    def prepare(self) -> None:
        """Makes all graphs."""
        for option in range(len(BUCKET_BYTES)):
            self._scene(option)

    @cached_property
    def _own(self) -> list[tuple[Decision, tuple[str, ...]]]:
        found = section_decisions(
            self._scene(0), {PlanSection.FUSION}, coarsen=self._options.coarsen
        )
        return [(one.decision, one.options[0]) for one in found]

    @cached_property
    def decisions(self) -> list[Decision]:
        buckets = Decision(
            section=PlanSection.COMMUNICATION,
            name="buckets",
            num_options=len(BUCKET_BYTES),
            weight_ns=sum(layer.backward_ns for layer in self._layers),
        )
        return [*(decision for decision, _ in self._own), buckets]

    def _scene(self, option: int) -> Scene:
        if option not in self._scenes:
            cluster = Cluster.of_hosts(
                num_hosts=self._num_ranks, ranks_per_host=1, intra=NETWORK, inter=NETWORK
            )
            job = SyntheticJob(
                layers=self._layers,
                cluster=cluster,
                algorithm="gang",
                bucket_bytes=BUCKET_BYTES[option],
                seed=1,
            )
            graph = synthesize(job)
            self._scenes[option] = replace(
                Scene.recorded(
                    graph,
                    training=TrainingFacts(module_classes=_classes(self._layers)),
                    module_costs=_costs(self._layers),
                ),
                structure=step_structure(graph),
            )
        return self._scenes[option]

    def _changed(self, candidate: Candidate) -> Scene:
        modules = [
            path
            for (_, paths), option in zip(self._own, candidate, strict=False)
            if option
            for path in paths
        ]
        scene = self._scene(candidate[-1])
        if not modules:
            return scene
        return with_sections(scene, {PlanSection.FUSION: FusionSection(modules=tuple(modules))})

    def graph_of(self, candidate: Candidate) -> Graph:
        return self._changed(candidate).graph

    def evaluate(self, candidate: Candidate) -> Evaluated:
        """Modules of a candidate share no operation, so that their changes add up exactly."""
        work_ns = self._row(candidate)
        if not self._options.partial:
            graph = self._scene(candidate[-1]).graph.with_work_ns(work_ns)
            return Evaluated(step_ns=replay(graph, fold=self._options.fold).step_ns)
        return Evaluated(step_ns=self._session(candidate[-1]).step_ns(work_ns))

    def _session(self, option: int) -> ReplaySession:
        if option not in self._sessions:
            graph = self._scene(option).graph
            self._sessions[option] = ReplaySession(graph, fold=self._options.fold)
        return self._sessions[option]

    def estimate(self, candidates: Sequence[Candidate]) -> list[Evaluated] | None:
        steps = np.zeros(len(candidates), dtype=np.int64)
        for option in sorted({one[-1] for one in candidates}):
            places = [place for place, one in enumerate(candidates) if one[-1] == option]
            rows = np.stack([self._row(candidates[place]) for place in places])
            found = self._session(option).estimate(rows)
            if found is None:
                return None
            steps[places] = found
        return [Evaluated(step_ns=step_ns) for step_ns in steps.tolist()]

    def _row(self, candidate: Candidate) -> I8:
        work_ns: I8 = self._scene(candidate[-1]).graph.ops.work_ns.copy()
        for place, chosen in enumerate(candidate[:-1]):
            if chosen:
                work_ns += self._delta(place, candidate[-1])
        return np.asarray(np.maximum(work_ns, 0))

    def _delta(self, place: int, option: int) -> I8:
        if (place, option) not in self._deltas:
            alone = [0] * len(self._own) + [option]
            alone[place] = 1
            after = self.graph_of(tuple(alone)).ops.work_ns
            self._deltas[place, option] = after - self._scene(option).graph.ops.work_ns
        return self._deltas[place, option]

    def compiled(self, _candidate: Candidate) -> list[Candidate]:
        """All sizes of buckets are options from the start."""
        return []


def _classes(layers: Sequence[Layer]) -> dict[str, str]:
    """Modules of one place in their blocks are of one class."""
    found = {"Model": "Model"}
    for layer in layers:
        for path in (*reversed(outer_paths(layer.name)), layer.name):
            found.setdefault(path, "".join(sign for sign in path if not sign.isdigit()))
    return found


def _costs(layers: Sequence[Layer]) -> ModuleCosts:
    """Larger modules gain more when compiled; some lose."""
    chance = random.Random(3)
    timings: list[ModuleTiming] = []
    ratios: dict[str, float] = {}
    for path, kind in _classes(layers).items():
        ratio = ratios.setdefault(kind, chance.uniform(0.6, 1.1))
        for variant, scale in ((AS_RECORDED, 1.0), (COMPILED, ratio)):
            times = [round(1_000_000 * scale)] * 5
            timings.append(
                ModuleTiming(modules=[path], variant=variant, forward_ns=times, backward_ns=times)
            )
    return ModuleCosts(timings=tuple(timings))
