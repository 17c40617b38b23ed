"""Facts of a recorded training besides its graph: modules, cores, habits of its program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from augury.build.recorded.forward_shares import forward_shares
from augury.build.recorded.gradient_reads import reads_gradients
from augury.core.enums import StepState
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

_CASTS = frozenset(("ToCopyBackward0",))
"""Nodes of autograd that cast a gradient back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """Facts that decide which sections of a plan apply, and to what part of the step."""

    module_classes: Mapping[str, str] = field(default_factory=dict)
    """Class name of each trained module by its path, in the order of the model."""
    forward_shares: Mapping[str, float] = field(default_factory=dict)
    """Share of forward that each module takes, without the modules inside of it. Graphs of runs
    without a device have forward as one operation; empty for others."""
    num_threads: tuple[int, ...] = ()
    """Threads of each rank that share the work of one operation; 0 if unknown."""
    cores_per_rank: tuple[float, ...] = ()
    """Cores of each rank: those of its host divided by the ranks there; 0 if unknown."""
    main_cpu_ns: tuple[int, ...] = ()
    """CPU time of each rank's main thread in one step; 0 if unknown."""
    uses_autocast: bool = False
    """Whether forward casts parameters to another precision, as autocast does."""
    reads_gradients: bool = False
    """Whether the program reads gradients between backward and the update, as clipping does."""


def training_facts(trace: Trace) -> TrainingFacts:
    """Returns the facts of a recorded run."""
    hosts = Counter(facts.host for facts in trace.ranks)
    classes: dict[str, str] = {}
    for facts in trace.ranks:
        classes |= facts.modules
    cores = []
    for facts in trace.ranks:
        shared = facts.cores / hosts[facts.host]
        cores.append(shared if facts.cpu_limit is None else min(shared, facts.cpu_limit))
    return TrainingFacts(
        module_classes=classes,
        forward_shares=forward_shares(trace),
        num_threads=tuple(facts.num_threads for facts in trace.ranks),
        cores_per_rank=tuple(cores),
        main_cpu_ns=tuple(_main_cpu_ns(trace, facts.rank) for facts in trace.ranks),
        uses_autocast=uses_autocast(trace),
        reads_gradients=reads_gradients(trace),
    )


def _main_cpu_ns(trace: Trace, rank: int) -> int:
    steps = trace.steps
    own = (steps.rank == rank) & (steps.state == StepState.TIMED) & (steps.cpu_ns != NONE)
    return round(float(np.median(steps.cpu_ns[own]))) if own.any() else 0


def uses_autocast(trace: Trace) -> bool:
    """Whether backward casts gradients back in modules that hold parameters: under autocast each
    of them casts its parameters itself."""
    owners = {
        trace.strings[int(name)].rpartition(".")[0] for name in set(trace.gradients.name.tolist())
    }
    casting = [number for number, name in enumerate(trace.strings) if name in _CASTS]
    rows = np.flatnonzero(np.isin(trace.events.name, casting))
    layers = {trace.strings[int(layer)] for layer in set(trace.events.layer[rows].tolist())}
    return bool(owners & layers - {""})
