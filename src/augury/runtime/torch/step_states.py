"""The states of a training step under a plan, and the transitions between them."""

from __future__ import annotations

from enum import Enum, Flag, auto


class ExchangePhase(Enum):
    """The state of an exchange of gradients; the transitions are the methods of StepStates."""

    IDLE = auto()
    """Nothing is in flight."""
    FILLING = auto()
    """Backward computes gradients, and pieces are sent."""
    SENT = auto()
    """All gradients were computed; the optimizer has not stepped."""
    STEPPING = auto()
    """As SENT, and everything has arrived: the optimizer's own ``step`` runs."""
    DUE = auto()
    """The optimizer has stepped; parameters are updated as their gradients arrive."""
    INCOMPLETE = auto()
    """Backward failed on this rank, or did not compute all gradients: as with stock DDP, training
    cannot continue."""
    BROKEN = auto()
    """Waiting failed: another rank has failed or died."""
    PARTLY_UPDATED = auto()
    """As BROKEN, and some parameters are those of the next step."""


COMPUTED = (ExchangePhase.SENT, ExchangePhase.STEPPING, ExchangePhase.DUE)
BEFORE_STEP = (ExchangePhase.FILLING, ExchangePhase.SENT, ExchangePhase.STEPPING)
IN_FLIGHT = (ExchangePhase.FILLING, *COMPUTED)
FLUSHABLE = (ExchangePhase.SENT, ExchangePhase.DUE)
LOST = (ExchangePhase.INCOMPLETE, ExchangePhase.BROKEN, ExchangePhase.PARTLY_UPDATED)


class ProgramState(Flag):
    """What the program is doing. The states overlap: a backward may run within a forward, and a
    forward within a backward."""

    FORWARD = auto()
    """A training forward of the model runs."""
    BACKWARD = auto()
    """A backward runs whose end is reported by ``BackwardHook``."""
    ANNOUNCED = auto()
    """A forward has announced an exchange whose gradients have not all been computed."""


class StepStates:
    """The phase of the exchange and the state of the program, with all their transitions."""

    def __init__(self) -> None:
        self.phase = ExchangePhase.IDLE
        self.why_lost = ""
        """Why the phase is one of LOST."""
        self._program = ProgramState(0)
        # Read for every gradient and every module, where testing a flag would be slow.
        self.is_in_forward = self.is_in_backward = self.is_announced = False

    # --- program

    def enter(self, state: ProgramState) -> None:
        self._change(self._program | state)

    def leave(self, state: ProgramState) -> None:
        self._change(self._program & ~state)

    def _change(self, program: ProgramState) -> None:
        self._program = program
        self.is_in_forward = ProgramState.FORWARD in program
        self.is_in_backward = ProgramState.BACKWARD in program
        self.is_announced = ProgramState.ANNOUNCED in program

    # --- exchange

    def begin_filling(self) -> None:
        """IDLE -> FILLING: backward has computed the first gradient."""
        self.phase = ExchangePhase.FILLING

    def finish_filling(self) -> None:
        """FILLING -> SENT: all pieces can be sent."""
        self.phase = ExchangePhase.SENT

    def begin_stepping(self) -> None:
        """SENT -> STEPPING."""
        self.phase = ExchangePhase.STEPPING

    def end_stepping(self) -> None:
        """STEPPING -> SENT: until ``make_due`` where the step succeeded."""
        if self.phase is ExchangePhase.STEPPING:
            self.phase = ExchangePhase.SENT

    def make_due(self) -> None:
        """SENT -> DUE: the optimizer has stepped."""
        self.phase = ExchangePhase.DUE

    def finish(self) -> None:
        """SENT or DUE -> IDLE: nothing is in flight any more."""
        self.phase = ExchangePhase.IDLE

    def give_up(self, why: str) -> None:
        """FILLING -> INCOMPLETE."""
        self.phase = ExchangePhase.INCOMPLETE
        self.why_lost = why
        self.leave(ProgramState.ANNOUNCED)

    def fail(self, why: str, *, is_partly_updated: bool) -> None:
        """Any phase -> BROKEN or PARTLY_UPDATED."""
        self.phase = ExchangePhase.PARTLY_UPDATED if is_partly_updated else ExchangePhase.BROKEN
        self.why_lost = why
