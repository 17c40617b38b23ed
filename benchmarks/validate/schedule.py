"""Which steps of a job are what: recorded, plain, or in a changed configuration.

Rounds interleave all of them, so that a slow minute of the machine falls on all alike. A round is
a block as recorded, with a window in its midst, then a block of every change.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.validate.settings import Change, Setting

WARM_UP = 3
"""Steps of a block that do not count: DDP deals out its buckets after the first."""
BEFORE, WINDOW, AFTER = 5, 8, 5
"""Steps of a block as recorded: plain, in the window, plain. The first after a window does not
count, and behind the last window come three steps in detail and what the recorder then does."""
BASE = BEFORE + WINDOW + AFTER
CHANGED = 9
FIRST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    setting: Setting

    @property
    def changes(self) -> list[Change]:
        """Those that this job makes itself."""
        return [change for change in self.setting.changes if change.measured_by is None]

    @property
    def first_steps(self) -> int:
        """Before the first block; without changes there are no blocks."""
        return FIRST_STEPS if self.changes else FIRST_STEPS + self.setting.rounds * BASE

    @property
    def blocks(self) -> list[str]:
        """Of one round, as the training script takes them."""
        if not self.changes:
            return []
        changed = [f"{change.block}:{CHANGED}@{change.name}" for change in self.changes]
        return [f"base:{BASE}", *changed]

    @property
    def windows(self) -> list[tuple[int, int]]:
        """From the end of one step to the end of another, as ``augury run --steps`` takes them."""
        begins = [first - 1 + BEFORE for first, _ in self._base_blocks()]
        return [(begin, begin + WINDOW) for begin in begins]

    @property
    def kept(self) -> list[tuple[int, int]]:
        """First and last step of what was done in the recorded configuration."""
        return [(1, FIRST_STEPS), *self._base_blocks()]

    def _base_blocks(self) -> list[tuple[int, int]]:
        warm_up = WARM_UP if self.changes else 0
        round_steps = warm_up + BASE + len(self.changes) * (WARM_UP + CHANGED)
        begins = [FIRST_STEPS + warm_up + i * round_steps + 1 for i in range(self.setting.rounds)]
        return [(begin, begin + BASE - 1) for begin in begins]
