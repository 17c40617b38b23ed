"""Small random trainings whose combinations of changes can all be replayed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from augury.core.enums import ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.plan.plan import PlanSection
from augury.optimize.space import Candidate, Decision, Evaluated
from augury.replay.run import replay
from augury.replay.session import ReplaySession

US = 1_000
ALPHA_NS = 60 * US


@dataclass(frozen=True)
class Layer:
    forward_ns: int
    backward_ns: tuple[int, int]
    gradient_bytes: tuple[int, int]
    activation_bytes: int
    fused_ratio: float


@dataclass(frozen=True)
class Training:
    """Layers on two ranks, whose gradients travel in buckets."""

    layers: tuple[Layer, ...]
    ns_per_byte: float

    @classmethod
    def random(cls, seed: int, *, max_layers: int = 3) -> Training:
        chance = random.Random(seed)

        def layer() -> Layer:
            return Layer(
                forward_ns=chance.randint(50, 400) * US,
                backward_ns=(chance.randint(50, 400) * US, chance.randint(50, 400) * US),
                gradient_bytes=(chance.randint(1, 400) * 1024, chance.randint(1, 400) * 1024),
                activation_bytes=chance.randint(1, 64) << 20,
                fused_ratio=chance.uniform(0.6, 1.1),
            )

        layers = tuple(layer() for _ in range(chance.randint(2, max_layers)))
        return cls(layers=layers, ns_per_byte=chance.uniform(0.2, 4.0))

    def graph(
        self, buckets: Sequence[int], fused: Sequence[int], recomputed: Sequence[int]
    ) -> Graph:
        """``buckets``: sizes, in gradients. A fused layer releases its gradients together, a
        recomputed one frees its activations and computes them again."""
        builder = GraphBuilder()
        gangs = [builder.gang() for _ in buckets]
        for _ in range(2):
            self._add_rank(builder, gangs, buckets, fused, recomputed)
        return builder.build()

    def _add_rank(
        self,
        builder: GraphBuilder,
        gangs: Sequence[int],
        buckets: Sequence[int],
        fused: Sequence[int],
        recomputed: Sequence[int],
    ) -> None:
        rank = builder.rank()
        compute = builder.resource("compute", rank=rank)
        link = builder.resource("link", rank=rank, kind=ResourceKind.COMMUNICATION)
        before: list[int] = []
        forwards, released = [], []
        for place, layer in enumerate(self.layers):
            ratio = layer.fused_ratio if place in fused else 1.0
            work_ns = round(layer.forward_ns * ratio)
            op = builder.op("forward", rank=rank, resource=compute, work_ns=work_ns, after=before)
            before = [op]
            forwards.append(op)
        for place in reversed(range(len(self.layers))):
            layer = self.layers[place]
            ratio = layer.fused_ratio if place in fused else 1.0
            first_ns, second_ns = (round(ns * ratio) for ns in layer.backward_ns)
            if place in recomputed:
                first_ns += round(layer.forward_ns * ratio)
            if place in fused:
                first_ns, second_ns = first_ns + second_ns, 0
            first = builder.op(
                "backward", rank=rank, resource=compute, work_ns=first_ns, after=before
            )
            second = (
                builder.op("backward", rank=rank, work_ns=second_ns, after=[first])
                if (not second_ns)
                else builder.op(
                    "backward", rank=rank, resource=compute, work_ns=second_ns, after=[first]
                )
            )
            held = layer.activation_bytes >> (4 if place in recomputed else 0)
            builder.buffer(held, rank=rank, taken_by=forwards[place], given_by=second)
            released += [
                (first, layer.gradient_bytes[0]),
                (second, layer.gradient_bytes[1]),
            ]
            before = [second]
        sent, at = [], 0
        for gang, size in zip(gangs, buckets, strict=True):
            own = released[at : at + size]
            at += size
            total = sum(nbytes for _, nbytes in own)
            sent.append(
                builder.op(
                    "reduce",
                    rank=rank,
                    resource=link,
                    work_ns=ALPHA_NS + round(total * self.ns_per_byte),
                    gang=gang,
                    after=[op for op, _ in own],
                )
            )
        builder.op("update", rank=rank, resource=compute, work_ns=50 * US, after=[*before, *sent])


class TrainingSpace:
    """Layers to fuse, pairs of layers to fuse with one decision, layers to recompute, and buckets.

    Buckets are the communication: lists that suit a candidate become options of the last decision
    when the search compiles them."""

    def __init__(
        self,
        training: Training,
        *,
        recompute: bool = False,
        can_estimate: bool = True,
        can_compile: bool = True,
        fold: bool = True,
    ) -> None:
        self.training = training
        self._can_estimate, self._can_compile, self._fold = can_estimate, can_compile, fold
        self.num_layers = len(training.layers)
        self._buckets: list[tuple[int, ...]] = [(2 * self.num_layers,)]
        self._recompute = recompute
        self._sessions: dict[int, ReplaySession] = {}
        self.num_evaluated = 0

    @property
    def decisions(self) -> list[Decision]:
        number = self.num_layers
        found = [
            Decision(
                section=PlanSection.FUSION,
                name=f"layer {place}",
                num_options=2,
                weight_ns=layer.forward_ns + sum(layer.backward_ns),
                excludes=(number,) if place < 2 else (),
            )
            for place, layer in enumerate(self.training.layers)
        ]
        found.append(
            Decision(section=PlanSection.FUSION, name="layers 0, 1", num_options=2, excludes=(0, 1))
        )
        if self._recompute:
            found += [
                Decision(section=PlanSection.RECOMPUTE, name=f"layer {place}", num_options=2)
                for place in range(number)
            ]
        return [
            *found,
            Decision(
                section=PlanSection.COMMUNICATION,
                name="buckets",
                num_options=len(self._buckets),
            ),
        ]

    def graph_of(self, candidate: Candidate) -> Graph:
        number = self.num_layers
        fused = [place for place in range(number) if candidate[place]]
        fused += [0, 1] if candidate[number] else []
        recomputed = candidate[number + 1 : -1]
        return self.training.graph(
            self._buckets[candidate[-1]],
            fused,
            [place for place, option in enumerate(recomputed) if option],
        )

    def evaluate(self, candidate: Candidate) -> Evaluated:
        self.num_evaluated += 1
        timeline = replay(self.graph_of(candidate), fold=self._fold)
        return Evaluated(
            step_ns=timeline.step_ns,
            peak_bytes=max(peak.size_bytes for peak in timeline.peak_memory),
        )

    def estimate(self, candidates: Sequence[Candidate]) -> list[Evaluated] | None:
        """Counts compute and the last bucket only: good for an order, not for times."""
        if not self._can_estimate:
            return None
        found = []
        for candidate in candidates:
            graph = self.graph_of(candidate)
            on_compute = graph.ops.resource == 0
            step_ns = int(graph.ops.work_ns[on_compute].sum())
            step_ns += int(graph.ops.work_ns[graph.ops.gang >= 0][-1])
            own = graph.buffers.rank == 0
            found.append(
                Evaluated(step_ns=step_ns, peak_bytes=int(graph.buffers.size_bytes[own].sum()))
            )
        return found

    def compiled(self, candidate: Candidate) -> list[Candidate]:
        """Adds lists of equal buckets, and lists of two buckets."""
        if not self._can_compile:
            return []
        number = 2 * self.num_layers
        lists = {
            (size,) * (number // size) + ((number % size,) if number % size else ())
            for size in range(1, number)
        }
        lists |= {(number - last, last) for last in range(1, number)}
        for one in sorted(lists - set(self._buckets)):
            self._buckets.append(one)
        return [(*candidate[:-1], option) for option in range(len(self._buckets))]
