"""Roles of a job's steps: recorded, plain, or in a changed configuration.

Rounds interleave all of them, so that a slow minute of the machine affects all alike. A round is a
block of the recorded configuration with a window in the middle, then one block per change.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.validate.settings import Change, Setting

WARM_UP = 3
"""Steps at the start of a block that are not measured: DDP rebuilds its buckets after the first."""
BEFORE, WINDOW, AFTER = 5, 8, 5
"""Steps of a recorded block: plain, in the window, plain. The first step after a window is not
measured. Three detailed steps and the recorder's processing follow the last window."""
BASE = BEFORE + WINDOW + AFTER
CHANGED = 9
FIRST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    setting: Setting

    @property
    def changes(self) -> list[Change]:
        """Changes that this job itself makes."""
        return [change for change in self.setting.changes if change.measured_by is None]

    @property
    def first_steps(self) -> int:
        """Number of steps before the first block; without changes there are no blocks."""
        return FIRST_STEPS if self.changes else FIRST_STEPS + self.setting.rounds * BASE

    @property
    def blocks(self) -> list[str]:
        """Blocks of one round, as arguments of the training script."""
        if not self.changes:
            return []
        changed = [f"{change.block}:{CHANGED}@{change.name}" for change in self.changes]
        return [f"base:{BASE}", *changed]

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Recording windows from the end of one step to the end of another, as arguments of
        ``augury run --steps``."""
        begins = [first - 1 + BEFORE for first, _ in self._base_blocks()]
        return [(begin, begin + WINDOW) for begin in begins]

    @property
    def kept(self) -> list[tuple[int, int]]:
        """First and last step of each stretch in the recorded configuration."""
        return [(1, FIRST_STEPS), *self._base_blocks()]

    def _base_blocks(self) -> list[tuple[int, int]]:
        warm_up = WARM_UP if self.changes else 0
        round_steps = warm_up + BASE + len(self.changes) * (WARM_UP + CHANGED)
        begins = [FIRST_STEPS + warm_up + i * round_steps + 1 for i in range(self.setting.rounds)]
        return [(begin, begin + BASE - 1) for begin in begins]
