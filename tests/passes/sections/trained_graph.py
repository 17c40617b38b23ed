"""A graph like that of a recorded training of four layers in two blocks, with all facts known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from augury.build.recorded.training_facts import TrainingFacts
from augury.core.enums import MemoryKind, OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE
from augury.core.trace.module_timing import ModuleTiming
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT, COPY_BUCKET
from augury.costs.module_costs import ModuleCosts
from augury.passes.protocol import Scene

MS = 1_000_000
CLASSES = {
    "Net": "Net",
    "block.0": "Block",
    "block.0.a": "Linear",
    "block.0.b": "ReLU",
    "block.1": "Block",
    "block.1.a": "Linear",
    "block.1.b": "ReLU",
}
LEAVES = ("block.0.a", "block.0.b", "block.1.a", "block.1.b")
FORWARD_NS = {"block.0.a": 4 * MS, "block.0.b": 1 * MS, "block.1.a": 2 * MS, "block.1.b": 1 * MS}
LOSS_NS = 2 * MS
BACKWARD_NS = {"block.0.a": 6 * MS, "block.0.b": 2 * MS, "block.1.a": 4 * MS, "block.1.b": 2 * MS}
ADD_NS = 100_000
SAVED_BYTES = {"block.0.a": 1_000, "block.0.b": 300, "block.1.a": 700, "block.1.b": 200}
PARAMETER_BYTES = {"block.0.a": 4_000_000, "block.1.a": 2_000_000}


class RunOp(Protocol):
    """Adds an operation to the main thread."""

    def __call__(
        self, name: str, kind: OpKind, ns: int, step: int, layer: str | None = None
    ) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What to build."""

    num_ranks: int = 2
    num_steps: int = 2
    has_layers_in_forward: bool = False
    num_passes: int = 1
    loading_ns: int = 0
    ns_per_byte: float = 2.0
    classes: tuple[tuple[str, str], ...] = tuple(CLASSES.items())
    cores_per_rank: float = 1.0
    uses_autocast: bool = False
    timings: tuple[ModuleTiming, ...] = ()

    def scene(self) -> Scene:
        builder = GraphBuilder(meta={"source": "recorded"})
        gangs: dict[tuple[int, str], int] = {}
        for _ in range(self.num_ranks):
            self._add_rank(builder, builder.rank(), gangs)
        whole_ns = sum(FORWARD_NS.values()) + LOSS_NS
        facts = TrainingFacts(
            module_classes=dict(self.classes),
            forward_shares=(
                {}
                if self.has_layers_in_forward
                else {path: ns / whole_ns for path, ns in FORWARD_NS.items()}
            ),
            num_threads=(1,) * self.num_ranks,
            cores_per_rank=(self.cores_per_rank,) * self.num_ranks,
            uses_autocast=self.uses_autocast,
        )
        costs = ModuleCosts(
            timings=self.timings,
            class_names=facts.module_classes,
            recorded_threads=1,
            cores_per_rank=self.cores_per_rank,
        )
        return Scene.recorded(builder.build(), training=facts, module_costs=costs)

    def _add_rank(
        self, builder: GraphBuilder, rank: int, gangs: dict[tuple[int, str], int]
    ) -> None:
        thread = builder.resource("main thread", rank=rank)
        stream = builder.shared_resource(
            "communication", rank=rank, kind=ResourceKind.COMMUNICATION, width=2
        )
        last: list[int] = []

        def run(name: str, kind: OpKind, ns: int, step: int, layer: str | None = None) -> int:
            op = builder.op(
                name,
                kind=kind,
                rank=rank,
                resource=thread if ns else NONE,
                work_ns=ns,
                layer=layer,
                step=step,
                after=last,
            )
            last[:] = [op]
            return op

        for layer, size in PARAMETER_BYTES.items():
            for kind in (MemoryKind.PARAMETER, MemoryKind.OPTIMIZER):
                builder.buffer(size, rank=rank, kind=kind, layer=f"{layer}.weight")
        for step in range(self.num_steps):
            run("step begins", OpKind.OTHER, 0, step)
            if self.loading_ns:
                run("next", OpKind.DATA, self.loading_ns, step)
            made: dict[str, int] = {}
            for _ in range(self.num_passes):
                made = self._add_pass(builder, rank, run, step)
            last_op = last[0]
            for layer in reversed(PARAMETER_BYTES):
                size = PARAMETER_BYTES[layer]
                place = step, layer
                if place not in gangs:
                    gangs[place] = builder.gang()
                carried = builder.op(
                    "all_reduce",
                    kind=OpKind.ALL_REDUCE,
                    rank=rank,
                    resource=stream,
                    work_ns=round(size * self.ns_per_byte),
                    size_bytes=size,
                    gang=gangs[place] if self.num_ranks > 1 else NONE,
                    step=step,
                    after=[made[layer]],
                )
                copied = builder.op(
                    COPY_BUCKET,
                    kind=OpKind.COPY,
                    rank=rank,
                    resource=thread,
                    work_ns=200_000,
                    size_bytes=size,
                    step=step,
                    after=[carried, last_op],
                )
                last_op = copied
                builder.gradient(
                    f"{layer}.weight",
                    rank=rank,
                    step=step,
                    size_bytes=size,
                    made_by=made[layer],
                    carried_by=carried,
                    used_by=copied,
                )
            last[:] = [last_op]
            run("Optimizer.step#SGD.step", OpKind.UPDATE, 3 * MS, step)

    def _add_pass(self, builder: GraphBuilder, rank: int, run: RunOp, step: int) -> dict[str, int]:
        if self.has_layers_in_forward:
            begins = [
                run(layer, OpKind.FORWARD, ns, step, layer) for layer, ns in FORWARD_NS.items()
            ]
            run("loss", OpKind.FORWARD, LOSS_NS, step)
        else:
            whole_ns = sum(FORWARD_NS.values()) + LOSS_NS
            begins = [run("DistributedDataParallel.forward", OpKind.FORWARD, whole_ns, step)]
        made = {}
        for layer in reversed(LEAVES):
            parts = 2 if layer in PARAMETER_BYTES else 1
            ops = [
                run(f"{layer}Backward", OpKind.BACKWARD, BACKWARD_NS[layer] // parts, step, layer)
                for _ in range(parts)
            ]
            end = ops[-1]
            if layer in PARAMETER_BYTES:
                # The gradient exists before the rest of the layer's backward.
                end = run(ACCUMULATES_GRADIENT, OpKind.BACKWARD, ADD_NS, step, layer)
                made[layer] = end
                builder.buffer(
                    PARAMETER_BYTES[layer],
                    rank=rank,
                    kind=MemoryKind.GRADIENT,
                    layer=f"{layer}.weight",
                    taken_by=end,
                )
            builder.buffer(
                SAVED_BYTES[layer],
                rank=rank,
                kind=MemoryKind.ACTIVATION,
                layer=layer,
                taken_by=begins[0],
                given_by=end,
            )
        return made


def timing(
    modules: Iterable[str], variant: str, forward_ns: int, backward_ns: int, saved_bytes: int = 0
) -> ModuleTiming:
    """Five equal samples, so that the error of the measurement is the smallest one."""
    return ModuleTiming(
        modules=list(modules),
        variant=variant,
        forward_ns=[forward_ns] * 5,
        backward_ns=[backward_ns] * 5,
        saved_bytes=saved_bytes,
    )


BLOCKS = ("block.0", "block.1")
TIMED = (
    timing(BLOCKS, "", 100, 200, 1_000),
    timing(BLOCKS, "compiled", 80, 150, 900),
    timing(BLOCKS, "bfloat16", 50, 120, 500),
    timing(BLOCKS, "compiled+bfloat16", 30, 80, 450),
    timing(BLOCKS, "threads=2", 60, 110),
)
