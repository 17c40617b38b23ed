"""What a made-up training run is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from augury.build.algorithms import find_algorithm
from augury.build.layers import Layer, ModelSize, conv_layers
from augury.build.pipeline import PipelineSchedule
from augury.build.placement import Placement
from augury.build.ports import PortKind
from augury.core.cluster import Cluster, Link
from augury.core.errors import UsageError
from augury.core.kinds import OpKind

PARAMETER_SERVER = "parameter-server"

NOMINAL_CLUSTER = Cluster(
    num_hosts=2,
    ranks_per_host=4,
    intra=Link(latency_ns=3_000, bandwidth_bytes_per_s=100_000_000_000),
    inter=Link(latency_ns=15_000, bandwidth_bytes_per_s=10_000_000_000, overhead_ns=2_000),
)


def _default_layers() -> tuple[Layer, ...]:
    return conv_layers(ModelSize())


@dataclass(frozen=True, kw_only=True)
class SyntheticJob:
    """Model, cluster and execution. Every rank of the cluster trains: those of one pipeline
    stage are a data-parallel group of consecutive ranks; servers have hosts of their own."""

    layers: tuple[Layer, ...] = field(default_factory=_default_layers)
    cluster: Cluster = NOMINAL_CLUSTER

    algorithm: str = "gang"
    """Of the gradients' all-reduce, or ``parameter-server``."""
    ports: PortKind = PortKind.FIFO
    bucket_bytes: int = 25 << 20
    urgent_first: bool = False
    """What the next forward needs first goes first, instead of what is ready first."""
    num_servers: int = 2
    partition_bytes: int = 4_000_000
    placement: Placement = Placement.BALANCED

    num_stages: int = 1
    num_micro_batches: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B

    num_steps: int = 1
    has_barrier: bool = True
    """All gradients are reduced before the first update; all updates end before the next
    forward. Without it each layer waits for its own only."""
    optimizer_bytes_per_parameter_byte: int = 2

    jitter: float = 0.0
    """Sigma of the log-normal factor of every compute operation."""
    stragglers: tuple[tuple[int, float], ...] = ()
    """Ranks with the factor by which their compute takes longer."""
    compute_rate: float = 1.0
    """What is left of the speed of compute while communication progresses beside it."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "num_stages",
            "num_micro_batches",
            "num_steps",
            "num_servers",
            "bucket_bytes",
            "partition_bytes",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", remedy="make it at least 1")
        if self.num_stages > len(self.layers) or self.cluster.num_ranks % self.num_stages:
            raise UsageError(
                f"{len(self.layers)} layers on {self.cluster.num_ranks} ranks do not make"
                f" {self.num_stages} pipeline stages",
                remedy="choose stages that divide the ranks, not more than layers",
            )
        if not self.uses_servers:
            algorithm = find_algorithm(OpKind.ALL_REDUCE, self.algorithm)
            if algorithm.is_gang and self.urgent_first:
                raise UsageError(
                    "gangs by priority deadlock when ranks are not in step",
                    remedy="expand the collectives: ring, tree, two-level or parameter-server",
                )
        if self.jitter < 0:
            raise UsageError(f"jitter is {self.jitter}", remedy="make it 0 or more")
        if not 0.001 <= self.compute_rate <= 1:
            raise UsageError(f"compute_rate is {self.compute_rate}", remedy="make it 0.001 to 1")
        for rank, factor in self.stragglers:
            if not 0 <= rank < self.cluster.num_ranks or not factor > 0:
                raise UsageError(
                    f"rank {rank} cannot be slower by a factor of {factor}",
                    remedy=f"name one of {self.cluster.num_ranks} ranks and a factor above 0",
                )

    @property
    def uses_servers(self) -> bool:
        return self.algorithm == PARAMETER_SERVER

    @property
    def num_replicas(self) -> int:
        """Ranks of one pipeline stage."""
        return self.cluster.num_ranks // self.num_stages
