"""Description of a synthetic training job: model, cluster and execution."""

from __future__ import annotations

from dataclasses import dataclass, field

from augury.build.collectives.algorithms import ALGORITHMS, find_algorithm
from augury.build.collectives.placement import Placement
from augury.build.collectives.ports import PortKind
from augury.build.pipeline_order import PipelineSchedule
from augury.build.synthetic.layers import Layer, ModelSize, conv_layers
from augury.core.cluster.cluster import Cluster, Link
from augury.core.enums import OpKind
from augury.core.errors import UsageError

PARAMETER_SERVER = "parameter-server"
SCHEMES = (*(a.name for a in ALGORITHMS if a.kind is OpKind.ALL_REDUCE), PARAMETER_SERVER)
"""Names of the schemes that can reduce gradients."""

NOMINAL_CLUSTER = Cluster.of_hosts(
    num_hosts=2,
    ranks_per_host=4,
    intra=Link(latency_ns=3_000, bandwidth_bytes_per_s=100_000_000_000),
    inter=Link(latency_ns=15_000, bandwidth_bytes_per_s=10_000_000_000, overhead_ns=2_000),
)

_AT_LEAST_ONE = (
    "num_stages",
    "num_micro_batches",
    "num_steps",
    "num_servers",
    "bucket_bytes",
    "partition_bytes",
)


def _default_layers() -> tuple[Layer, ...]:
    return conv_layers(ModelSize())


@dataclass(frozen=True, kw_only=True)
class SyntheticJob:
    """Synthetic training job. Each device of the cluster runs one training rank. Consecutive ranks
    form a pipeline stage; the ranks of a stage are data-parallel replicas. Parameter servers run on
    additional hosts."""

    layers: tuple[Layer, ...] = field(default_factory=_default_layers)
    cluster: Cluster = NOMINAL_CLUSTER

    algorithm: str = "gang"
    """Scheme that reduces gradients: one of SCHEMES."""
    ports: PortKind = PortKind.FIFO
    bucket_bytes: int = 25 << 20
    urgent_first: bool = False
    """Whether gradients are sent in the order in which the next forward needs them, instead of the
    order in which they become ready."""
    num_servers: int = 2
    partition_bytes: int = 4_000_000
    placement: Placement = Placement.BALANCED

    num_stages: int = 1
    num_micro_batches: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B

    num_steps: int = 1
    has_barrier: bool = True
    """Whether all gradients are reduced before the first update, and all updates end before the
    next forward; otherwise each layer waits only for its own gradients and its own update."""
    optimizer_bytes_per_parameter_byte: int = 2

    jitter: float = 0.0
    """Sigma of the log-normal factor that multiplies each compute duration."""
    stragglers: tuple[tuple[int, float], ...] = ()
    """Pairs of a rank and the factor that multiplies its compute durations."""
    compute_rate: float = 1.0
    """Interference: relative speed of compute while communication is in flight."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            _require(getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "at least 1")
        if self.num_stages > len(self.layers) or self.cluster.num_devices % self.num_stages:
            raise UsageError(
                f"{len(self.layers)} layers on {self.cluster.num_devices} ranks cannot be"
                f" split into {self.num_stages} pipeline stages",
                remedy="choose a number of stages that divides the number of ranks and is at most"
                " the number of layers",
            )
        _require(
            self.algorithm in SCHEMES,
            f"the algorithm is {self.algorithm!r}",
            f"one of {', '.join(SCHEMES)}",
        )
        if self.schedule is PipelineSchedule.INTERLEAVED:
            raise UsageError(
                "synthetic pipelines have one chunk of layers per stage",
                remedy="choose the schedule gpipe or 1f1b",
            )
        if self.uses_gangs and self.urgent_first:
            raise UsageError(
                "gangs ordered by priority deadlock when ranks start them in different orders",
                remedy="expand collectives into transfers:"
                " ring, tree, two-level or parameter-server",
            )
        _require(0 <= self.jitter <= 2, f"jitter is {self.jitter}", "0 to 2")
        _require(
            0.001 <= self.compute_rate <= 1, f"compute_rate is {self.compute_rate}", "0.001 to 1"
        )
        optimizer = self.optimizer_bytes_per_parameter_byte
        _require(optimizer >= 0, f"optimizer_bytes_per_parameter_byte is {optimizer}", "0 or more")
        for rank, factor in self.stragglers:
            _require(
                0 <= rank < self.cluster.num_devices,
                f"the straggler is rank {rank}",
                f"one of {self.cluster.num_devices} ranks",
            )
            _require(
                0.001 <= factor <= 1000,
                f"the straggler factor of rank {rank} is {factor}",
                "0.001 to 1,000",
            )

    @property
    def uses_servers(self) -> bool:
        return self.algorithm == PARAMETER_SERVER

    @property
    def uses_gangs(self) -> bool:
        """Whether each reduction is a gang: one operation per rank, all in progress together."""
        return not self.uses_servers and find_algorithm(OpKind.ALL_REDUCE, self.algorithm).is_gang

    @property
    def num_replicas(self) -> int:
        """Number of ranks of one pipeline stage."""
        return self.cluster.num_devices // self.num_stages


def _require(is_valid: bool, cause: str, allowed: str) -> None:
    if not is_valid:
        raise UsageError(cause, remedy=f"make it {allowed}")
