"""The recorded run of a job over a ring, as a graph with the costs of its modules.

Three steps of stock DDP on every rank: a main thread with forward and backward kernel by kernel,
buckets of gradients as collectives on a stream of their own, copies out of the buckets, the update.
Calibration has the times of the ring and of every module, compiled and not.
"""

from __future__ import annotations

from collections.abc import Sequence

from augury.build.recorded.training_facts import TrainingFacts
from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.progress import silent
from augury.core.trace.module_timing import COMPILED, ModuleTiming
from augury.core.trace.trace import Calibration
from augury.costs.module_costs import ModuleCosts
from augury.passes.protocol import Scene
from augury.predict.plan_prediction import PlannedRun
from augury.predict.prediction import representation_of
from augury.predict.replays import replay_graph
from augury.predict.schedule_case import graph_case
from augury.schedule.order_parts import hold_ns
from benchmarks.optimize.job import Job
from benchmarks.optimize.networks import Kernel, TimedLayer, Work, alone_ns, backward_of, update_ns

NUM_STEPS = 3
_TIMES = ("forward_ns", "backward_ns")
AT_ONCE = 2
"""Buckets in flight."""
CALIBRATED_BYTES = tuple(4096 << doubled for doubled in range(13))


def planned_run(job: Job) -> PlannedRun:
    """Returns the run that a search starts from."""
    graph = job_graph(job)
    calibration, costs, facts = _calibration(job), _module_costs(job), _facts(job)
    scene = Scene.recorded(graph, calibration, training=facts, module_costs=costs)
    baseline = replay_graph(graph)
    case = graph_case(graph, calibration, _needs(job), [], progress=silent)
    return PlannedRun(
        scene=scene,
        baseline=baseline,
        represented=representation_of(baseline),
        case=case,
        run_digest="",
        progress=silent,
    )


def job_graph(job: Job) -> Graph:
    builder = GraphBuilder(meta={"network": job.network.name})
    ranks = [_Rank(builder, job, builder.rank(host=f"host{n}")) for n in range(job.num_ranks)]
    for step in range(NUM_STEPS):
        buckets = job.default_order(job.problem()).pieces
        gangs = [builder.gang() for _ in buckets]
        for rank in ranks:
            rank.add_step(step, gangs)
    for rank in ranks:
        rank.hold_parameters()
    return builder.build()


class _Rank:
    def __init__(self, builder: GraphBuilder, job: Job, rank: int) -> None:
        self._builder, self._job, self._rank = builder, job, rank
        self._problem = job.problem()
        self._thread = builder.resource("main thread", rank=rank)
        self._stream = builder.shared_resource(
            "communication, group 0",
            rank=rank,
            kind=ResourceKind.COMMUNICATION,
            width=AT_ONCE,
            discipline=Discipline.FIFO,
        )
        self._last: list[int] = []

    def add_step(self, step: int, gangs: list[int]) -> None:
        layers = self._job.network.layers
        forward = [self._layer(step, OpKind.FORWARD, layer, layer.kernels) for layer in layers]
        backward: dict[str, int] = {}
        for layer in reversed(layers):
            kernels = backward_of(layer.kernels)
            backward[layer.path] = self._layer(step, OpKind.BACKWARD, layer, kernels)
        for layer, op in zip(layers, forward, strict=True):
            self._builder.buffer(
                layer.saved_bytes,
                rank=self._rank,
                kind=MemoryKind.ACTIVATION,
                taken_by=op,
                given_by=backward[layer.path],
                layer=module_path(self._job, layer.path),
            )
        self._exchange(step, backward, gangs)
        whole_ns = update_ns(self._job.network.size_bytes)
        self._compute(step, OpKind.UPDATE, None, whole_ns)

    def hold_parameters(self) -> None:
        for layer in self._job.network.layers:
            for kind in (MemoryKind.PARAMETER, MemoryKind.GRADIENT, MemoryKind.OPTIMIZER):
                self._builder.buffer(
                    sum(layer.tensors_bytes),
                    rank=self._rank,
                    kind=kind,
                    layer=module_path(self._job, layer.path),
                )

    def _layer(self, step: int, kind: OpKind, layer: TimedLayer, kernels: Sequence[Kernel]) -> int:
        """Adds the kernels of a layer; returns the last one."""
        batch = self._job.network.batch
        for kernel in kernels:
            self._compute(step, kind, layer.path, alone_ns(kernel, batch))
        return self._last[0]

    def _compute(self, step: int, kind: OpKind, path: str | None, work_ns: int) -> int:
        new = self._builder.op(
            kind.label if path is None else f"{path}.{kind.label}",
            kind=kind,
            rank=self._rank,
            resource=self._thread,
            work_ns=work_ns,
            step=step,
            layer=None if path is None else module_path(self._job, path),
            after=self._last,
        )
        self._last = [new]
        return new

    def _exchange(self, step: int, backward: dict[str, int], gangs: list[int]) -> None:
        gradients = self._problem.gradients
        for piece, gang in zip(self._job.default_order(self._problem).pieces, gangs, strict=True):
            own = [gradients[part.gradient] for part in piece.slices]
            made_by = [backward[one.name.rpartition(".")[0]] for one in own]
            sent = self._builder.op(
                "all-reduce",
                kind=OpKind.ALL_REDUCE,
                rank=self._rank,
                resource=self._stream,
                work_ns=hold_ns(self._problem.network, piece.size_bytes),
                size_bytes=piece.size_bytes,
                step=step,
                gang=gang,
                after=[max(made_by)],
            )
            copied = self._builder.op(
                "copy bucket to gradients",
                kind=OpKind.COPY,
                rank=self._rank,
                work_ns=0,
                step=step,
                after=[sent, *self._last],
            )
            self._last = [copied]
            for gradient, op in zip(own, made_by, strict=True):
                self._builder.gradient(
                    gradient.name,
                    rank=self._rank,
                    step=step,
                    size_bytes=gradient.size_bytes,
                    made_by=op,
                    carried_by=sent,
                    used_by=copied,
                )


def module_path(job: Job, path: str) -> str:
    """Returns a module's path in the whole model, which is a module as well."""
    return f"{job.network.name}.{path}" if path else job.network.name


def _modules(job: Job) -> dict[str, range]:
    whole = range(len(job.network.layers))
    own = job.network.modules()
    return {module_path(job, ""): whole} | {module_path(job, path): own[path] for path in own}


def _facts(job: Job) -> TrainingFacts:
    layers = job.network.layers
    norm = "LayerNorm" if job.network.name.startswith("bert") else "BatchNorm2d"
    by_path = {module_path(job, layer.path): layer for layer in layers}
    classes: dict[str, str] = {}
    for path in _modules(job):
        layer = by_path.get(path)
        kind = None if layer is None else layer.kernels[0].work
        classes[path] = "Block" if kind is None else norm if kind is Work.REDUCTION else "Product"
    return TrainingFacts(module_classes=classes)


def _module_costs(job: Job) -> ModuleCosts:
    layers = job.network.layers
    timings: list[ModuleTiming] = []
    for path, places in _modules(job).items():
        saved_bytes = sum(layers[place].saved_bytes for place in places)
        alone = [sum(getattr(layers[place], name) for place in places) for name in _TIMES]
        times = {"": alone, COMPILED: list(job.network.compiled_ns(places))}
        timings += (
            ModuleTiming(
                modules=[path],
                variant=variant,
                forward_ns=[forward_ns],
                backward_ns=[backward_ns],
                saved_bytes=saved_bytes,
            )
            for variant, (forward_ns, backward_ns) in times.items()
        )
    return ModuleCosts(timings=tuple(timings), class_names=_facts(job).module_classes)


def _calibration(job: Job) -> list[Calibration]:
    return [
        Calibration(
            collective="all_reduce",
            group=0,
            size_bytes=size_bytes,
            concurrent=1,
            beside_compute=False,
            durations_ns=[hold_ns(job.link, size_bytes)],
        )
        for size_bytes in CALIBRATED_BYTES
    ]


def _needs(job: Job) -> dict[str, float]:
    """Returns the share of forward that passes before each parameter is needed."""
    problem = job.problem()
    return {one.name: one.need_ns / problem.forward_ns for one in problem.gradients}
