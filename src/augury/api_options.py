"""Types of the keyword options that calls of the API pass on, for type checkers and editors.

A test compares them with the functions that take the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from augury.core.cluster.cluster import Cluster
    from augury.core.progress import Progress
    from augury.executor import EngineName
    from augury.oracle.fitting.corrections import Constants


class OptimizeOptions(TypedDict, total=False):
    """Options of ``augury.optimize.optimize_run.optimize``."""

    memory_limit: int | str | None
    allow: str | Sequence[str] | None
    only: str | Sequence[str] | None
    budget: float | str
    seed: int
    starts: int
    engine: EngineName
    address: str | None
    jobs: int | None


class OracleOptions(TypedDict, total=False):
    """Options of ``augury.oracle.predict_strategies.predict_strategies``."""

    devices: str | Sequence[int]
    global_batch: int | None
    batch_per_device: int | None
    input_shapes: Sequence[str]
    times: Path | None
    times_batch: int | None
    collectives: Path | None
    samples: int | None
    strategies: str | Sequence[str]
    memory_limit_bytes: int | None
    precision: str
    optimizer: str
    recompute: bool
    overlap: float
    group: int | None
    micro_batches: int | None
    schedule: str
    chunks: int
    constants: str | Constants
    fidelity: Literal["closed", "replay"]
    one_configuration: bool
    engine: EngineName
    address: str | None
    jobs: int | None
    progress: Progress


class ValidationOptions(TypedDict, total=False):
    """Options of ``augury.oracle.fitting.validation.validate_oracle``."""

    fit: Path | None
    fit_half: Literal["first", "second"] | None
    model: str | None
    fit_model: str | None
    cluster: str | PathLike[str] | Cluster
    collectives: Path | None
    precision: str
    group: int | None
    overlap: float
    constants: str
    engine: EngineName
    address: str | None
    jobs: int | None
    progress: Progress


class SynthOptions(TypedDict, total=False):
    """Options of ``augury.build.synthetic.job_options.make_synthetic_job``."""

    model: str
    layers: int
    parameters: str
    activations: str
    forward: str
    backward: str
    scheme: str
    algorithm: str
    bucket: str
    servers: int
    partition: str
    stages: int | None
    micro_batches: int | None
    schedule: str
    barrier: bool
    steps: int
    jitter: float
    straggler: Sequence[str]
    seed: int


class RunOptions(TypedDict, total=False):
    """Options of ``augury.job.make_job``."""

    module: str | None
    steps: str
    ranks: str | None
    calibrate: bool
    calibrate_seconds: float
    wire: bool
    wire_events: int
    watch: int | None
    has_trial: bool
    force: bool
