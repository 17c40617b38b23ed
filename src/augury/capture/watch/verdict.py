"""The verdict of a watch window: what bounds the step, which rank is late, what has become slower.

Ranks of a job wait for each other, so their steps are equally long. A rank is late by its own time,
the step without waiting in collectives, compared with that of the other ranks. The shortest wait
of a rank is communication that no late rank explains.

A verdict changes only beyond noise, only by a margin that is larger for entering it than for
leaving it, and only if two windows in a row agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from augury.core.results.watch import (
    COMPUTE_PARTS,
    PARTS,
    Cause,
    Part,
    RankTimes,
    WatchVerdict,
)
from augury.core.units import format_ns

ENTER, LEAVE = 0.10, 0.05
"""Share of the step by which a rank must be late, or the step longer than at first, for that
verdict to begin, and below which it ends."""
BOUND_MARGIN = 0.15
"""Share of the step by which another bound must exceed the one in force."""
DEVIATIONS = 2.0
"""Differences below this number of median deviations are noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """One window of all ranks that were heard."""

    step_ns: int
    spread_ns: int
    parts_ns: dict[Part, int]
    """Medians over the ranks."""
    shared_wait_ns: int
    """Shortest wait of a rank in collectives."""
    straggler: RankTimes
    late_ns: int
    """Own time of the straggler beyond the median of the other ranks; 0 for one rank."""
    late_part: Part
    late_delay_ns: int
    """How much longer the straggler waits for a core than the other ranks."""

    @property
    def straggler_share(self) -> float:
        return self.late_ns / self.step_ns

    def cause_ns(self) -> dict[Cause, int]:
        """The step divided by cause, without waiting for a late rank."""
        return {
            "compute": sum(self.parts_ns[part] for part in COMPUTE_PARTS),
            "communication": self.shared_wait_ns,
            "input": self.parts_ns["input"],
        }


def job_times(ranks: Sequence[RankTimes]) -> JobTimes:
    """``ranks`` is not empty."""
    straggler = max(ranks, key=lambda one: (one.own_ns, -one.rank))
    others = [one for one in ranks if one is not straggler] or [straggler]
    excess: dict[Part, float] = {
        part: straggler.part_ns(part) - median(one.part_ns(part) for one in others)
        for part in PARTS
        if part != "communication"
    }
    delays = [one.delay_ns or 0 for one in others]
    return JobTimes(
        step_ns=max(1, round(median(one.step_ns for one in ranks))),
        spread_ns=round(median(one.spread_ns for one in ranks)),
        parts_ns={part: round(median(one.part_ns(part) for one in ranks)) for part in PARTS},
        shared_wait_ns=min(one.communication_ns for one in ranks),
        straggler=straggler,
        late_ns=round(straggler.own_ns - median(one.own_ns for one in others)),
        late_part=max(excess, key=lambda part: excess[part]),
        late_delay_ns=round((straggler.delay_ns or 0) - median(delays)),
    )


def judge(now: JobTimes, baseline: JobTimes, in_force: WatchVerdict | None) -> WatchVerdict:
    """The verdict of one window, in view of the one that is in force."""
    slower = _slower(now, baseline, in_force)
    own = now.straggler.rank
    was_late = in_force is not None and in_force.bound == "straggler" and in_force.rank == own
    if _exceeds(now.late_ns, now.step_ns, now.spread_ns, is_in_force=was_late):
        return WatchVerdict(bound="straggler", rank=own, part=now.late_part, slower=slower)
    shares = now.cause_ns()
    bound = max(shares, key=lambda cause: shares[cause])
    before = in_force.bound if in_force is not None else None
    if before is not None and before != "straggler":
        is_close = shares[bound] - shares[before] < BOUND_MARGIN * now.step_ns
        bound = before if is_close else bound
    return WatchVerdict(bound=bound, slower=slower)


def _slower(now: JobTimes, baseline: JobTimes, in_force: WatchVerdict | None) -> Cause | None:
    more_ns = now.step_ns - baseline.step_ns
    noise_ns = round(math.hypot(now.spread_ns, baseline.spread_ns))
    was_slower = in_force.slower if in_force is not None else None
    is_slower = _exceeds(more_ns, baseline.step_ns, noise_ns, is_in_force=was_slower is not None)
    if not is_slower:
        return None
    then = baseline.cause_ns()
    grown = {cause: now_ns - then[cause] for cause, now_ns in now.cause_ns().items()}
    most = max(grown, key=lambda cause: grown[cause])
    if was_slower is not None and grown[most] - grown[was_slower] < LEAVE * baseline.step_ns:
        return was_slower
    return most


def _exceeds(excess_ns: int, step_ns: int, noise_ns: int, *, is_in_force: bool) -> bool:
    if is_in_force:
        return excess_ns > LEAVE * step_ns
    return excess_ns > max(ENTER * step_ns, DEVIATIONS * noise_ns)


class VerdictInForce:
    """Follows the windows of a job: a verdict is in force once two windows in a row agree."""

    def __init__(self) -> None:
        self.baseline: JobTimes | None = None
        self.verdict: WatchVerdict | None = None
        self._baseline_step = 0
        self._candidate: WatchVerdict | None = None

    def add(self, now: JobTimes, step: int) -> tuple[WatchVerdict, str | None]:
        """Returns the verdict of this window alone, and a line to print if the verdict in force
        has changed. The first verdict is news only if it names a straggler."""
        if self.baseline is None:
            self.baseline, self._baseline_step = now, step
        own = judge(now, self.baseline, self.verdict)
        former, candidate = self.verdict, self._candidate
        self._candidate = own
        if former is not None and own.news == former.news:
            self.verdict = own
            return own, None
        if candidate is None or candidate.news != own.news:
            return own, None
        self.verdict = own
        if former is None and own.bound != "straggler" and own.slower is None:
            return own, None
        return own, f"step {step}: {self._text(now, former, own)}"

    def _text(self, now: JobTimes, former: WatchVerdict | None, verdict: WatchVerdict) -> str:
        assert self.baseline is not None
        step = f"the step takes {format_ns(now.step_ns)}"
        pct = 100 * (now.step_ns / self.baseline.step_ns - 1)
        if verdict.slower is not None:
            step += f", {pct:.0f} % longer than at step {self._baseline_step}"
        if verdict.bound == "straggler":
            delay = ""
            if now.late_delay_ns > now.late_ns / 2:
                delay = f" ({format_ns(now.late_delay_ns)} without a core)"
            return (
                f"rank {verdict.rank} is a straggler, {format_ns(now.late_ns)} per step behind the"
                f" others in {verdict.part}{delay}; {step}"
            )
        bound = f"bound by {verdict.bound}"
        if former is not None and former.bound == "straggler":
            return f"rank {former.rank} is no longer a straggler; {step}, {bound}"
        if verdict.slower is not None:
            grown_ns = now.cause_ns()[verdict.slower] - self.baseline.cause_ns()[verdict.slower]
            return f"{verdict.slower} is slower by {format_ns(grown_ns)} per step; {step}, {bound}"
        if former is not None and former.slower is not None:
            return f"{former.slower} is no longer slower than at first; {step}, {bound}"
        return f"the step is now {bound}, no longer by {former.bound if former else ''}; {step}"
