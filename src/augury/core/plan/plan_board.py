"""Where runtime and recorder of one process meet without knowing each other.

The runtime says what became of the plan; the recorder opens its windows only while no trial runs,
and says while one is open, so that the runtime changes nothing within it.
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
    """A trial runs, or is about to: windows wait."""
    is_recording: bool = False
    """A window is open: no change of mode."""
    pieces: PieceNotes = field(default_factory=PieceNotes)
    """What the runtime notes of recorded steps."""
    refusals: Callable[[Sequence[Any], Sequence[Any]], list[str]] | None = None
    """Says, of models and optimizers, why the runtime would follow no plan of pieces there."""


board = PlanBoard()
