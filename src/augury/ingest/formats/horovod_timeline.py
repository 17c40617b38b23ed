"""Makes a Trace of a Horovod timeline: the communication of rank 0, and the gaps between.

Tensors that Horovod fused are one collective. Compute is not recorded; the time in which nothing
is communicated is unexplained. Steps are the periods of the collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import HOROVOD_TIMELINE, RankFacts, Steps, Trace
from augury.ingest.formats.horovod_events import (
    HorovodTimeline,
    TensorOperation,
    read_horovod,
)
from augury.ingest.rank.step_periods import step_periods
from augury.ingest.run_files import ReadBudget
from augury.ingest.trace_builder import MutableEvents, TraceBuilder

_KINDS = {
    "ALLREDUCE": OpKind.ALL_REDUCE,
    "ADASUM": OpKind.ALL_REDUCE,
    "ALLGATHER": OpKind.ALL_GATHER,
    "BROADCAST": OpKind.BROADCAST,
    "ALLTOALL": OpKind.ALL_TO_ALL,
    "REDUCESCATTER": OpKind.REDUCE_SCATTER,
    "BARRIER": OpKind.BARRIER,
}
_COPIES = ("MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER")
_WAITS = ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA", "QUEUE", "ALLOCATE_OUTPUT", "INIT_")
_FUSED_US = 1_000.0
"""Longest time in which Horovod notes the start of an activity for all tensors of a buffer."""


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """One collective, of one tensor or of several fused ones."""

    operations: list[TensorOperation]
    kind: OpKind
    transport: str
    start_us: float
    end_us: float
    copies: dict[str, tuple[float, float]]

    @property
    def name(self) -> str:
        first, more = self.operations[0].tensor, len(self.operations) - 1
        return f"{self.transport} {first}" + (f" and {more} more" if more else "")

    @property
    def negotiated_us(self) -> tuple[float, float] | None:
        """From the time at which rank 0 was ready to the end of the negotiation."""
        found = [
            (one.ready_us.get(0, one.negotiated_us[0]), one.negotiated_us[1])
            for one in self.operations
            if one.negotiated_us is not None
        ]
        if not found:
            return None
        begin, end = max(start for start, _ in found), max(end for _, end in found)
        return min(begin, end), end


def read_horovod_timeline(path: Path, budget: ReadBudget | None = None) -> Trace:
    ledger, builder = Ledger(), TraceBuilder()
    timeline = read_horovod(path, ledger, budget)
    exchanges = _exchanges(timeline)
    if not exchanges:
        raise InputError(
            f"{path} has no finished operation", remedy="let the job run longer with the timeline"
        )
    ledger.note(
        "rank-0-only",
        "a Horovod timeline has the communication of rank 0 only, and no compute",
        severity=Severity.INFO,
        remedy="record the job's ranks with their profilers for the rest",
    )
    ledger.note(
        "missing-rank",
        "a rank has no trace",
        severity=Severity.INFO,
        count=timeline.world_size - 1,
    )
    rows = _rows(exchanges)
    start_us = np.array([row.start_us for row in rows])
    end_us = np.array([row.end_us for row in rows])
    start_ns = np.rint((start_us + timeline.epoch_us) * 1000).astype(np.int64)
    end_ns = np.rint((end_us + timeline.epoch_us) * 1000).astype(np.int64)
    events = MutableEvents.blank(start_ns, end_ns - start_ns)
    group = builder.group(tuple(range(timeline.world_size)), "horovod")
    for at, row in enumerate(rows):
        events.kind[at], events.cause[at] = row.kind, row.cause
        events.name[at] = builder.strings.number(row.name)
        events.stream[at] = builder.stream(0, row.stream_kind, row.stream)
        events.size_bytes[at] = row.size_bytes
        if row.kind.is_communication:
            events.group[at], events.sequence[at] = group, row.exchange
            events.phase[at] = Phase.BACKWARD
    steps = _steps(exchanges, rows, start_ns, end_ns)
    events.step[:] = steps.of_exchange[[row.exchange for row in rows]]
    builder.add(0, events)
    return Trace(
        events=builder.events(),
        streams=builder.streams(),
        steps=steps.table,
        strings=builder.strings.table(),
        ranks=[RankFacts(rank=0, host="", framework=HOROVOD_TIMELINE)],
        world_size=timeline.world_size,
        groups=builder.groups,
        ledger=ledger,
    )


def _exchanges(timeline: HorovodTimeline) -> list[_Exchange]:
    """Joins the tensors that were communicated together: the activities of one buffer start and
    end together for all of its tensors."""
    found: list[_Exchange] = []
    for operation in timeline.operations:
        kind = next((kind for name, kind in _KINDS.items() if name in operation.name), None)
        if kind is None:
            continue
        moving = [
            activity
            for activity in operation.activities
            if activity.name not in _COPIES and not activity.name.startswith(_WAITS)
        ]
        start_us = min((one.start_us for one in moving), default=operation.start_us)
        end_us = max((one.end_us for one in moving), default=operation.end_us)
        transport = moving[0].name if moving else operation.name
        copies = {
            activity.name: (activity.start_us, activity.end_us)
            for activity in operation.activities
            if activity.name in _COPIES
        }
        last = found[-1] if found else None
        if (
            last is not None
            and last.transport == transport
            and copies
            and last.copies
            and abs(start_us - last.start_us) <= _FUSED_US
            and abs(end_us - last.end_us) <= _FUSED_US
            and min(end_us, last.end_us) > max(start_us, last.start_us)
        ):
            last.operations.append(operation)
            last.start_us, last.end_us = min(last.start_us, start_us), max(last.end_us, end_us)
            for name, (begin, end) in copies.items():
                known = last.copies.get(name, (begin, end))
                last.copies[name] = min(begin, known[0]), max(end, known[1])
            continue
        found.append(
            _Exchange(
                operations=[operation],
                kind=kind,
                transport=transport,
                start_us=start_us,
                end_us=end_us,
                copies=copies,
            )
        )
    found.sort(key=lambda one: one.start_us)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One event of the trace."""

    exchange: int
    kind: OpKind
    name: str
    stream_kind: StreamKind
    stream: str
    start_us: float
    end_us: float
    size_bytes: int = 0
    cause: int = NONE


def _rows(exchanges: list[_Exchange]) -> list[_Row]:
    rows: list[_Row] = []
    for number, one in enumerate(exchanges):
        cause = NONE

        def add(
            kind: OpKind,
            name: str,
            stream: str,
            span: tuple[float, float],
            size_bytes: int = 0,
            *,
            number: int = number,
        ) -> None:
            nonlocal cause
            is_copy = kind == OpKind.COPY
            rows.append(
                _Row(
                    exchange=number,
                    kind=kind,
                    name=name,
                    stream_kind=StreamKind.DEVICE if is_copy else StreamKind.COMMUNICATION,
                    stream=stream,
                    start_us=span[0],
                    end_us=max(span),
                    size_bytes=size_bytes,
                    cause=cause,
                )
            )
            cause = len(rows) - 1

        size_bytes = sum(operation.size_bytes for operation in one.operations)
        if one.negotiated_us is not None:
            add(OpKind.SYNC, f"negotiate {one.name}", "negotiation", one.negotiated_us)
        if _COPIES[0] in one.copies:
            add(OpKind.COPY, _COPIES[0], "fusion buffer", one.copies[_COPIES[0]])
        add(one.kind, one.name, "horovod", (one.start_us, one.end_us), size_bytes)
        if _COPIES[1] in one.copies:
            add(OpKind.COPY, _COPIES[1], "fusion buffer", one.copies[_COPIES[1]])
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundSteps:
    table: Steps
    of_exchange: np.ndarray[tuple[int], np.dtype[np.int32]]


def _steps(exchanges: list[_Exchange], rows: list[_Row], start_ns: I8, end_ns: I8) -> _FoundSteps:
    """A step reaches from the end of the last communication of one period to the end of the last
    one of the next. Communication before the first period, such as the broadcast of parameters,
    belongs to no step."""
    number = np.array([row.exchange for row in rows])
    first_ns = np.full(len(exchanges), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, number, start_ns)
    last_ns = np.full(len(exchanges), np.iinfo(np.int64).min)
    np.maximum.at(last_ns, number, end_ns)
    first_ns = np.maximum.accumulate(first_ns)
    periods = step_periods((one.operations[0].tensor for one in exchanges), first_ns, last_ns)
    if not periods:
        periods = [(int(first_ns.min()), int(last_ns.max()))]
    starts = np.array([begin for begin, _ in periods])
    of_exchange = np.searchsorted(starts, first_ns, side="right").astype(np.int32)
    of_exchange[first_ns >= periods[-1][1]] = 0
    bounds: list[int] = []
    for step in range(1, len(periods) + 1):
        own = of_exchange == step
        bounds.append(int(last_ns[own].max()) if own.any() else periods[step - 1][1])
    begin = [int(first_ns[of_exchange == 1].min()) if (of_exchange == 1).any() else starts[0]]
    size = len(periods)
    unknown = np.full(size, NONE, dtype=np.int64)
    ends = np.maximum.accumulate(np.array(bounds, dtype=np.int64))
    table = Steps(
        rank=np.zeros(size, dtype=np.int32),
        step=np.arange(1, size + 1, dtype=np.int32),
        start_ns=np.array([*begin, *ends[:-1].tolist()], dtype=np.int64),
        end_ns=ends,
        state=np.full(size, StepState.TIMED, dtype=np.uint8),
        cpu_ns=unknown,
        delay_ns=unknown,
        helper_cpu_ns=unknown,
    )
    return _FoundSteps(table=table, of_exchange=np.where(of_exchange == 0, NONE, of_exchange))
