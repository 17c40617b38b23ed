"""Whether a program looks at what is under way by habit or by chance."""

from __future__ import annotations

from augury.runtime.say import say

TOUCHES_UNTIL_BARRIER = 3
"""In so many steps in a row: from then on everything is waited for at that point, unasked."""


class Habits:
    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._num_steps = 0
        self._was_touched = False
        self.barrier: str | None = None
        """After what everything is waited for: ``backward`` or ``step``."""

    def note(self, when: str) -> None:
        """The program has looked, after that."""
        if self._was_touched or self.barrier is not None:
            return
        self._was_touched = True
        self._num_steps += 1
        if self._num_steps == TOUCHES_UNTIL_BARRIER:
            self.barrier = when
            what = "gradients" if when == "backward" else "parameters"
            say(
                f"the program looks at {what} between steps: "
                f"everything is waited for after every {when}",
                rank=self._rank,
            )

    def end_step(self) -> None:
        if not self._was_touched:
            self._num_steps = 0
        self._was_touched = False
