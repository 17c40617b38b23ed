"""Description of a training program: plain data, printable, made from a seed by ``generate``.

Defaults are the plainest program. Shrinking a failing program replaces fields by their defaults.
"""

from __future__ import annotations

import pprint
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of the network; ``kind`` is a key of ``blocks.BLOCKS``."""

    kind: str
    dtype: str = ""
    """Another dtype than the program's; empty: the program's."""
    every: int = 1
    """An optional block is used where (step + rank) % every == 0."""


@dataclass(frozen=True, kw_only=True)
class OptimizerChoice:
    kind: str = "SGD"
    options: tuple[tuple[str, object], ...] = (("lr", 0.1),)
    num_groups: int = 1
    num_omitted: int = 0
    """Parameters that the optimizer does not get at first, from the end of the list."""


@dataclass(frozen=True, kw_only=True)
class Act:
    """Something the program does at a point of a step; ``number`` selects among variants."""

    name: str
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Step:
    micro_batches: int = 1
    """Backward passes; all but the last are under ``no_sync``."""
    num_forwards: int = 1
    """Forward passes of which each loss is the sum."""
    zero: str = "start"
    """When gradients are zeroed: start, after_forward, end or never."""
    zero_by: str = "optimizer"
    set_to_none: bool = True
    evaluates_between: bool = False
    """A forward without gradients between forward and backward."""
    edits: tuple[Act, ...] = ()
    """Changes of gradients between backward and step."""
    clip: str = ""
    how: str = "plain"
    """How the optimizer steps: plain, closure, skip or twice."""
    fails: str = ""
    """What fails, and is caught by the program: see ``execute``."""
    loss_factor: float = 1.0
    acts: tuple[Act, ...] = ()
    """After the optimizer's step."""
    switch: str = ""
    """Before the step: to stock DDP, or to plan 0 or 1."""


@dataclass(frozen=True, kw_only=True)
class PlanChoice:
    """Which plan: ``kind`` is random, halves, mixed, buckets or the name of a policy."""

    kind: str = "random"
    seed: int = 0
    has_barrier: bool = False
    lanes: int = 1
    has_marks: bool = False
    ns_per_byte: float = 10.0
    """What the plan's problem says of the network."""


@dataclass(frozen=True, kw_only=True)
class Program:
    seed: int
    num_ranks: int = 2
    dtype: str = "float32"
    width: int = 8
    length: int = 2
    batch: int = 3
    blocks: tuple[Block, ...] = (Block(kind="linear"),)
    channels_last: bool = False
    output: str = "tensor"
    find_unused: bool = False
    bucket_view: bool = False
    broadcasts_buffers: bool = True
    bucket_cap_mb: float = 0.0
    """0: DDP's default."""
    optimizer: OptimizerChoice = field(default_factory=OptimizerChoice)
    scheduler: str = ""
    autocasts: bool = False
    scales: bool = False
    has_average: bool = False
    """A moving average of the parameters, updated where a step says so."""
    has_views: bool = False
    """Views of parameters that are made before the plan is applied."""
    other_model: str = ""
    """A second model: teacher (frozen), idle (DDP, not trained) or trained (DDP, stock)."""
    loss: str = "cross_entropy"
    steps: tuple[Step, ...] = (Step(), Step(), Step())
    plans: tuple[PlanChoice, ...] = (PlanChoice(), PlanChoice())
    """The plan that is applied first, and the one that a switch or a resumed run applies."""
    has_trial: bool = False
    """Plans are tried in the job before they are followed."""
    replans: bool = False
    log_every: int = 4


def text_of(program: Program) -> str:
    """What differs from the plainest program."""
    return pprint.pformat(_told(program), width=100, sort_dicts=False)


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_told(one) for one in value]
    if not is_dataclass(value):
        return value
    found = {}
    for one in fields(value):
        now = getattr(value, one.name)
        default = one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        if now != default:
            found[one.name] = _told(now)
    return found
