"""The status of a Plan in a run: first step under it, or the reason of refusal, and its trial.

The runtime publishes the status inside the training process; the recorder stores it with the
rank's record. Steps are exchanges of gradients, counted from 1; ``settled_step`` alone counts steps
of the optimizer, as the recorder does: a program may exchange several times per step.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from augury.core.plan.plan import Mode, Plan, PlanSection

MAX_STEP = 1 << 40
MAX_REASON_CHARS = 2000

_Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_Share = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]
_Sections = Annotated[list[PlanSection], msgspec.Meta(max_length=len(PlanSection))]
_Digest = Annotated[str, msgspec.Meta(max_length=64, pattern="^([0-9a-f]{64})?$")]


class TrainingMode(StrEnum):
    """How gradients are exchanged in a step."""

    STOCK = "stock"
    """DDP as the program made it."""
    PLANNED = "planned"
    """The plan's pieces, without DDP's own reduction."""
    BUCKETS = "buckets"
    """DDP with the plan's bucket sizes."""


def mode_of(plan: Plan) -> TrainingMode:
    """Returns the mode of training that follows this plan."""
    if plan.communication is None:
        return TrainingMode.STOCK
    is_pieces = plan.communication.mode is Mode.PIECES
    return TrainingMode.PLANNED if is_pieces else TrainingMode.BUCKETS


class ModeTime(msgspec.Struct, frozen=True, kw_only=True):
    """One mode in a trial."""

    mode: TrainingMode
    num_blocks: _Count
    step_ns: _Time
    """Median over its blocks of each block's median step."""
    gain_pct: _Share = 0.0
    """Gain over the stock step; positive: faster than stock. It is the mean over neighbouring
    blocks, so it may differ from the ratio of the two medians. 0 for stock itself."""
    interval_pct: tuple[_Share, _Share] = (0.0, 0.0)
    """90 % interval of the gain."""
    sections: _Sections = []
    """Sections of the plan that were on in this mode, besides communication."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a trial in the job: blocks of steps in alternating modes."""

    first_step: _Step
    last_step: _Step
    is_decided: bool
    """Whether an interval excluded zero. Otherwise stock DDP stays."""
    winner: TrainingMode
    sections: _Sections = []
    """Sections of the plan that are on in the winner, besides communication."""
    times: Annotated[list[ModeTime], msgspec.Meta(max_length=16)] = []
    digest: _Digest = ""
    """Digest of the plan that was tried."""


class Replan(msgspec.Struct, frozen=True, kw_only=True):
    """A search for a better plan in the job, because conditions had changed."""

    step: _Step
    reason: _Text
    digest: _Digest = ""
    """Digest of the new plan; empty where the search found no better one."""


class SectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One section of the plan in this job."""

    section: PlanSection
    is_applied: bool
    reason: _Text | None = None
    """Why it is not applied; None during a trial, too."""


class PlanStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the plan that a job was given."""

    digest: _Digest = ""
    """``plan_digest`` of the plan as given; empty where it could not be read."""
    mode: TrainingMode = TrainingMode.STOCK
    """The mode in force."""
    is_followed: bool = False
    """Whether the plan is in force, or what the trial left of it, and not only for a block."""
    from_step: _Step | None = None
    """The first step that follows the plan permanently."""
    settled_step: _Step | None = None
    """The first step of the optimizer in the mode that was kept; None: the mode never changed, or
    the recorder did not note it."""
    reason: _Text | None = None
    """Why the plan is not followed."""
    is_on_trial: bool = False
    """Whether modes still alternate."""
    has_trial: bool = True
    """False: the plan is followed regardless (``--no-trial``, or ``why_no_trial``)."""
    why_no_trial: _Text | None = None
    """Why there is no trial although one was asked for."""
    sections: Annotated[list[SectionStatus], msgspec.Meta(max_length=len(PlanSection))] = []
    """Every section of the plan; empty in records of an older Augury."""
    trials: Annotated[list[TrialResult], msgspec.Meta(max_length=1000)] = []
    replans: Annotated[list[Replan], msgspec.Meta(max_length=1000)] = []


class WindowMode(msgspec.Struct, frozen=True, kw_only=True):
    """The mode during a recorded window; steps ``first + 1`` to ``last`` are inside."""

    first: _Step
    last: _Step
    mode: TrainingMode
