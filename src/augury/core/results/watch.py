"""Lines of ``watch.jsonl``: times of all ranks in one window of ``augury run --watch``."""

from __future__ import annotations

from typing import Literal

import msgspec

from augury.core.results.schema_version import SCHEMA_VERSION

WATCH_FILE = "watch.jsonl"

Part = Literal["input", "forward", "backward", "communication", "update"]
"""Part of a step. ``input`` is all time before the first forward; ``communication`` is the time for
which the rank waited in collectives; ``backward`` is the rest of the step."""
PARTS: tuple[Part, ...] = ("input", "forward", "backward", "communication", "update")

Cause = Literal["compute", "communication", "input"]
Bound = Literal["compute", "communication", "input", "straggler"]
COMPUTE_PARTS: tuple[Part, ...] = ("forward", "backward", "update")


class RankTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the steps of one window, on one rank."""

    rank: int
    step_ns: int
    spread_ns: int = 0
    """Median deviation of steps from their median."""
    input_ns: int = 0
    forward_ns: int = 0
    backward_ns: int = 0
    communication_ns: int = 0
    update_ns: int = 0
    delay_ns: int | None = None
    """Time for which the training thread was runnable without a core; None where unknown."""
    copy_ns: int | None = None
    """Time of a fixed copy of memory, which shows the machine's speed; None without a probe."""

    def part_ns(self, part: Part) -> int:
        value: int = getattr(self, f"{part}_ns")
        return value

    @property
    def own_ns(self) -> int:
        """The step without waiting for other ranks."""
        return self.step_ns - self.communication_ns


class WatchVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the step, and which part has become slower since the first window."""

    bound: Bound
    rank: int | None = None
    """The straggler."""
    part: Part | None = None
    """Part in which the straggler takes longer than the other ranks."""
    slower: Cause | None = None
    """What grew most, if the step is slower than in the first window beyond noise."""

    @property
    def news(self) -> tuple[str, int | None, str | None]:
        """Verdicts are different news if these values differ."""
        return self.bound, self.rank, None if self.bound == "straggler" else self.slower


class WatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    schema_version: int = SCHEMA_VERSION
    start: int
    """Number of restarts of the job; steps are counted from 1 after each."""
    time_ns: int
    """When the line was written, since 1970."""
    first_step: int
    last_step: int
    num_steps: int
    """Steps that were measured; steps in profiled windows are left out."""
    world_size: int
    step_ns: int
    """Median over the ranks."""
    baseline_step_ns: int
    """The same in the first window."""
    slower_pct: float
    """Change of the step since the first window; negative if it is faster."""
    straggler_pct: float
    """Time by which the last rank is later than the others, as a share of the step."""
    window_verdict: WatchVerdict
    """Verdict of this window alone."""
    verdict: WatchVerdict | None
    """Verdict in force: the newest on which two windows in a row agreed; None before that."""
    changed: bool
    """Whether ``verdict`` is news. It was then printed."""
    text: str | None = None
    """The printed line; None if nothing was printed."""
    parts_ns: dict[Part, int]
    """Median of each part over the ranks."""
    ranks: list[RankTimes]
    """All ranks, or in large jobs those with the longest own time."""
    missing_ranks: list[int]
    """Ranks whose times did not arrive; at most 16 are listed."""
