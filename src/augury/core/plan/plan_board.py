"""State that the runtime and the recorder of one process share without importing each other.

The runtime publishes the status of the plan. The recorder opens its windows only while no trial
runs, and publishes that one is open, so that the runtime changes nothing during it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from augury.core.plan.piece_log import PieceNotes
from augury.core.plan.plan_status import PlanStatus


@dataclass(slots=True)
class PlanBoard:
    status: PlanStatus | None = None
    """None: the job was given no plan."""
    is_trial_due: bool = False
    """Whether a trial runs or is about to: recording windows wait for it."""
    is_recording: bool = False
    """Whether a recording window is open: the mode must not change."""
    pieces: PieceNotes = field(default_factory=PieceNotes)
    """Times of pieces in recorded steps."""
    refusals: Callable[[Sequence[Any], Sequence[Any]], list[str]] | None = None
    """Returns, for models and optimizers, the reasons why the runtime would follow no plan."""


board = PlanBoard()
