"""The trial of a plan in the job: blocks of steps in alternating modes, and the verdict.

The mode of a step follows from its number alone, so ranks switch without a message. Rank 0 times
its steps and decides. Rounds run through the modes back and forth, which cancels a steady drift of
the machine; blocks of the same round are compared with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from augury.core.measured_step import student
from augury.core.plan.plan_status import ModeTime, TrialResult
from augury.runtime.trial_modes import StepMode, mode_of_time


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRules:
    warm_up_steps: int = 5
    """Steps before the first block: allocations, and DDP rebuilds its buckets."""
    block_steps: int = 10
    settling_steps: int = 2
    """Steps at the start of a block that do not count."""
    least_rounds: int = 4
    most_steps: int = 200


UNKNOWN_PCT = 1e6
"""Half-width of the interval of a gain where no block was timed."""


class Trial:
    """``modes`` begins with stock. Steps are exchanges of gradients, from ``first_step`` on; the
    warm-up comes first, in stock mode."""

    def __init__(
        self, modes: Sequence[StepMode], first_step: int, rules: TrialRules, digest: str = ""
    ) -> None:
        self.modes = tuple(modes)
        self.rules = rules
        self.digest = digest
        self.first_step = first_step + rules.warm_up_steps
        self._ends_ns: dict[int, int] = {}
        self._is_over = False

    @property
    def round_steps(self) -> int:
        return len(self.modes) * self.rules.block_steps

    @property
    def most_rounds(self) -> int:
        return max(self.rules.least_rounds, self.rules.most_steps // self.round_steps)

    def mode_of(self, step: int) -> StepMode:
        """Returns the mode of a step. After the last round: stock, until the verdict arrives."""
        since = step - self.first_step
        number, within = divmod(since, self.round_steps)
        if since < 0 or number >= self.most_rounds:
            return self.modes[0]
        modes = self.modes if number % 2 == 0 else self.modes[::-1]
        return modes[within // self.rules.block_steps]

    def note_end(self, step: int, now_ns: int) -> None:
        """Notes when all gradients of a step were computed."""
        self._ends_ns[step] = now_ns

    def verdict(self, step: int) -> TrialResult | None:
        """Returns the outcome if the trial is over with that step."""
        rounds, within = divmod(step + 1 - self.first_step, self.round_steps)
        if self._is_over or within or rounds < self.rules.least_rounds:
            return None
        times = self._times(rounds)
        winner, is_decided = _winner(times)
        if not is_decided and rounds < self.most_rounds:
            return None
        self._is_over = True
        return TrialResult(
            first_step=self.first_step,
            last_step=step,
            is_decided=is_decided,
            winner=winner.exchange,
            sections=[*winner.sections],
            times=times,
            digest=self.digest,
        )

    def _times(self, num_rounds: int) -> list[ModeTime]:
        blocks = {
            mode: [self._block_ns(number, mode) for number in range(num_rounds)]
            for mode in self.modes
        }
        stock = blocks[self.modes[0]]
        found = []
        for mode, own in blocks.items():
            gains = [
                100 * (1 - ours / theirs)
                for ours, theirs in zip(own, stock, strict=True)
                if ours and theirs
            ]
            is_stock = mode is self.modes[0]
            found.append(
                ModeTime(
                    mode=mode.exchange,
                    sections=[*mode.sections],
                    num_blocks=len(own),
                    step_ns=round(median(own)),
                    gain_pct=0.0 if is_stock else fmean(gains or [0.0]),
                    interval_pct=(0.0, 0.0) if is_stock else _interval(gains),
                )
            )
        return found

    def _block_ns(self, number: int, mode: StepMode) -> float:
        """Returns the median step of a block. Two ranks that exchange shares directly are ahead of
        each other in turns, so two successive steps are taken together."""
        place = self.modes.index(mode)
        if number % 2:
            place = len(self.modes) - 1 - place
        rules = self.rules
        first = self.first_step + number * self.round_steps + place * rules.block_steps
        ends = [
            self._ends_ns[step]
            for step in range(first + rules.settling_steps - 1, first + rules.block_steps)
            if step in self._ends_ns
        ]
        apart = min(2, len(ends) - 1)
        if apart < 1:
            return 0.0
        return median((b - a) / apart for a, b in zip(ends, ends[apart:], strict=False))


def _interval(gains: Sequence[float]) -> tuple[float, float]:
    """Returns the 90 % interval of the mean."""
    if len(gains) < 2:
        return (-UNKNOWN_PCT, UNKNOWN_PCT) if not gains else (gains[0], gains[0])
    reach = student(len(gains) - 1) * stdev(gains) / math.sqrt(len(gains))
    return fmean(gains) - reach, fmean(gains) + reach


def _winner(times: Sequence[ModeTime]) -> tuple[StepMode, bool]:
    """Returns the winner, and whether the difference is significant; otherwise stock stays."""
    stock, *others = times
    faster = [one for one in others if one.interval_pct[0] > 0]
    if faster:
        return mode_of_time(max(faster, key=lambda one: one.gain_pct)), True
    return mode_of_time(stock), all(one.interval_pct[1] < 0 for one in others)
