"""The verdict on a run: what limits the step most, in one line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from augury.core.results.diagnosis import Bound, Finding, WaterfallPart
from augury.core.units import format_percent
from augury.diagnose import waterfall
from augury.diagnose.phrases import ranks_words

LEAST_SHARE = 0.1
"""A cause limits a step if its removal shortens the step by at least this share."""

_BOUND_OF_PART: dict[str, Bound] = {
    waterfall.INPUT: "input",
    waterfall.SLOW_RANKS: "straggler",
    waterfall.WAITING: "straggler",
    waterfall.STAGES: "pipeline",
    waterfall.BUBBLES: "pipeline",
    waterfall.COMMUNICATION: "communication",
    waterfall.SYNCHRONIZATION: "host",
    waterfall.LAUNCHES: "host",
    waterfall.PAUSES: "host",
}


def judge(
    parts: Sequence[WaterfallPart],
    findings: Sequence[Finding],
    *,
    step_ns: int,
    gain_alone_ns: Callable[[Collection[str]], int],
) -> tuple[Bound, str]:
    """Returns what limits the replayed step most, and the verdict. ``step_ns`` is the replayed
    step; ``gain_alone_ns`` returns what the removal of the named parts alone takes off it."""
    lost: dict[Bound, int] = {}
    paused_ns = 0
    for part in parts:
        if part.name in _BOUND_OF_PART:
            bound = _BOUND_OF_PART[part.name]
            lost[bound] = lost.get(bound, 0) + part.removed_ns
            paused_ns += part.removed_ns if part.name == waterfall.PAUSES else 0
    if step_ns <= 0:
        return "unknown", "unknown: the replayed step takes no time"
    most = _most(lost, LEAST_SHARE * step_ns, gain_alone_ns)
    share = lost.get(most, 0) / step_ns
    if most == "compute":
        floor_ns = parts[-1].step_ns if parts else step_ns
        return "compute", _with_advice(
            f"compute-bound: {format_percent(100 * floor_ns / step_ns)} of the step is compute",
            findings,
        )
    shown = format_percent(100 * share)
    words = {
        "communication": f"communication-bound: {shown} of the step is exposed communication",
        "straggler": _straggler(findings, shown),
        "input": f"input-bound: {shown} of the step waits for input",
        "host": f"host-bound: {shown} of the step is "
        + ("pauses" if 2 * paused_ns > lost.get("host", 0) else "time of the host"),
        "pipeline": f"pipeline-bound: {shown} of the step is uneven stages and bubbles",
    }
    return most, _with_advice(words[most], findings)


def _most(
    lost: dict[Bound, int], least_ns: float, gain_alone_ns: Callable[[Collection[str]], int]
) -> Bound:
    """The largest cause that limits the step also while all others stay. A host that launches ahead
    of its device loses time in the waterfall only once the device has become faster than the host;
    where causes limit the step only together, the largest one counts."""
    large = sorted((one for one in lost if lost[one] >= least_ns), key=lambda one: -lost[one])
    for bound in large:
        names = [name for name, of_part in _BOUND_OF_PART.items() if of_part == bound]
        if gain_alone_ns(names) >= least_ns:
            return bound
    return large[0] if large else "compute"


def _straggler(findings: Sequence[Finding], shown: str) -> str:
    late = next((one.where.ranks for one in findings if one.kind.startswith("straggler")), [])
    if late:
        return f"waiting for {ranks_words(late)}: {shown} of the step"
    return f"straggler-bound: ranks wait {shown} of the step for each other"


def _with_advice(verdict: str, findings: Sequence[Finding]) -> str:
    return verdict if findings else f"{verdict}; nothing worth doing was found"
