"""Finds the time in which the communications of a step move data, apart from waiting."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from augury.build.recorded.table.step_waits import StepWaits
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class JointTransfer:
    """A communication whose members progress together."""

    rows: list[int]
    work_ns: int
    """Time from the last start to the first end."""
    end_ns: int
    """The first end."""


@dataclass(slots=True)
class Transfers:
    """Communications of one step between ranks."""

    joint: list[JointTransfer] = field(default_factory=list)
    messages: list[tuple[int, int]] = field(default_factory=list)
    """Rows of a send that ended before its receive began, and of that receive."""
    num_implausible: int = 0
    """Members that did not overlap with the others in time: they are replayed on their own."""


def transfers(trace: Trace, found: StepWaits) -> Transfers:
    events = trace.events
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    rows = np.array(found.rows)
    rows = rows[(events.group[rows] != NONE) & (events.sequence[rows] != NONE)]
    for row, group, sequence in zip(
        rows.tolist(), events.group[rows].tolist(), events.sequence[rows].tolist(), strict=True
    ):
        members[group, sequence].append(row)
    result = Transfers()
    for own in members.values():
        _add(trace, found, own, result)
    return result


def _add(trace: Trace, found: StepWaits, rows: list[int], result: Transfers) -> None:
    events = trace.events
    start_ns = np.array([found.begin_ns[row] for row in rows])
    end_ns = events.start_ns[rows] + events.dur_ns[rows]
    if len(rows) < 2:
        return
    chosen = np.ones(len(rows), dtype=bool)
    if start_ns.max() >= end_ns.min():
        if {int(kind) for kind in events.kind[rows]} == {OpKind.SEND, OpKind.RECV}:
            send, receive = sorted(rows, key=lambda row: int(events.kind[row]))
            if int(events.start_ns[send] + events.dur_ns[send]) < found.begin_ns[receive]:
                result.messages.append((send, receive))
            else:
                result.num_implausible += 2
            return
        chosen = (start_ns < np.median(end_ns)) & (end_ns > np.median(start_ns))
        if chosen.sum() < 2 or start_ns[chosen].max() >= end_ns[chosen].min():
            result.num_implausible += len(rows)
            return
        result.num_implausible += int((~chosen).sum())
    kept = [row for row, keep in zip(rows, chosen.tolist(), strict=True) if keep]
    done_ns = int(end_ns[chosen].min())
    result.joint.append(JointTransfer(kept, done_ns - int(start_ns[chosen].max()), done_ns))
