"""The waterfall of a run: the step that remains as one cause of lost time after the other is
removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from augury.core.errors import AuguryError
from augury.core.results.diagnosis import Finding, WaterfallPart
from augury.diagnose.examined_run import ExaminedRun
from augury.passes.protocol import Pass
from augury.passes.removals.balanced_ranks import BALANCED_RANKS
from augury.passes.removals.fast_host import FAST_HOST
from augury.passes.removals.free_communication import FREE_COMMUNICATION
from augury.passes.removals.independent_ranks import INDEPENDENT_RANKS
from augury.passes.removals.level_ranks import LEVEL_RANKS, SlowRanks
from augury.passes.removals.no_input_wait import NO_INPUT_WAIT
from augury.passes.removals.no_pauses import NO_PAUSES
from augury.passes.removals.no_synchronization import NO_SYNCHRONIZATION

REPLAY_ERROR = "difference to the replay"
PAUSES = "pauses"
INPUT = "input"
SLOW_RANKS = "slow ranks"
STAGES = "uneven stages"
COMMUNICATION = "exposed communication"
BUBBLES = "pipeline bubbles"
WAITING = "waiting for each other"
SYNCHRONIZATION = "synchronization with devices"
LAUNCHES = "launches by the host"

_SLOW_PROCESSOR = "straggler-compute"
SLOW_KINDS = (_SLOW_PROCESSOR, "straggler-input", "straggler-host", "batch-imbalance")
"""Kinds of findings that name slow ranks."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A cause, and the pass that removes it."""

    name: str
    made_by: Pass[Any]
    parameters: Any = None


def removals_of(run: ExaminedRun, findings: Sequence[Finding]) -> list[Removal]:
    """Returns the removals in their order. Causes within ranks come first: their removal also
    shortens the waits of other ranks, which would otherwise count as communication. Ranks that
    findings name as slow are no typical ranks, even if they are most of them."""
    found = [Removal(PAUSES, NO_PAUSES)]
    if run.graph.num_ranks > 1:
        level = Removal(SLOW_RANKS, LEVEL_RANKS, _slow_ranks(findings))
        found.append(Removal(STAGES, BALANCED_RANKS) if run.is_pipeline else level)
    # What is left of input is the same on all ranks.
    found.append(Removal(INPUT, NO_INPUT_WAIT))
    found.append(Removal(COMMUNICATION, FREE_COMMUNICATION))
    found.append(Removal(BUBBLES if run.is_pipeline else WAITING, INDEPENDENT_RANKS))
    if run.is_on_devices:
        found += [Removal(SYNCHRONIZATION, NO_SYNCHRONIZATION), Removal(LAUNCHES, FAST_HOST)]
    return found


def make_waterfall(run: ExaminedRun, findings: Sequence[Finding] = ()) -> list[WaterfallPart]:
    """Removes one cause after the other. A cause that another one hides gets no part, but stays
    removed: otherwise it would appear in the floor once the other one is removed. A removal that
    lengthens the step is undone. Every part is positive, apart from the difference between measured
    and replayed step."""
    measured_ns = run.baseline.measured_step_ns
    left_ns, scene = run.step_ns, run.scene
    parts = []
    if measured_ns is not None and measured_ns != left_ns:
        parts.append(_part(REPLAY_ERROR, measured_ns, left_ns))
    for removal in removals_of(run, findings):
        one, parameters = removal.made_by, removal.parameters
        if one.applies(scene):
            continue
        try:
            changed = one.apply(scene, parameters).scene
            step_ns = run.replay(changed.graph).step_ns
        except AuguryError as error:
            run.note_failure([(one, parameters)], error)
            continue
        if step_ns < left_ns:
            parts.append(_part(removal.name, left_ns, step_ns))
        if step_ns <= left_ns:
            scene, left_ns = changed, step_ns
    return parts


def gain_alone_ns(
    run: ExaminedRun, names: Collection[str], findings: Sequence[Finding] = ()
) -> int:
    """Time that the removal of the named causes takes off the step while all others stay; 0 if it
    cannot be replayed."""
    scene = run.scene
    try:
        for removal in removals_of(run, findings):
            if removal.name in names and not removal.made_by.applies(scene):
                scene = removal.made_by.apply(scene, removal.parameters).scene
        return run.step_ns - run.replay(scene.graph).step_ns
    except AuguryError:
        return 0


def _slow_ranks(findings: Sequence[Finding]) -> SlowRanks:
    return SlowRanks(
        known=_named_ranks(findings, SLOW_KINDS),
        slow_processors=_named_ranks(findings, (_SLOW_PROCESSOR,)),
    )


def _named_ranks(findings: Sequence[Finding], kinds: Collection[str]) -> tuple[int, ...]:
    named = (one.where.ranks for one in findings if one.kind in kinds)
    return tuple(sorted({rank for ranks in named for rank in ranks}))


def _part(name: str, before_ns: int, after_ns: int) -> WaterfallPart:
    return WaterfallPart(name=name, removed_ns=before_ns - after_ns, step_ns=after_ns)
