"""One rank of an import: its events in a temporary file, and in memory what matching needs.

Ranks are read one after the other, or in several processes. Matching of collectives needs the
collectives of all ranks, but only one rank's events are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.enums import OpKind, StreamKind
from augury.core.errors import InputError
from augury.core.files import new_file
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Allocations, Clock, Events
from augury.ingest.collectives.rank_collectives import Collective, ranges_around
from augury.ingest.formats.kineto import KinetoTrace, read_kineto
from augury.ingest.rank.device_phases import fill_unlaunched_kernels
from augury.ingest.rank.kineto_rank import main_thread, read_kineto_rank
from augury.ingest.rank.staged_allocations import StagedAllocations, allocations_of
from augury.ingest.rank.steps import (
    AnnotatedStep,
    StepSource,
    annotated_step_at,
    found_steps,
)
from augury.ingest.run_files import ReadBudget
from augury.ingest.trace_builder import MutableEvents, TraceBuilder, rank_events
from augury.ingest.vocabulary.torch import collective_kind

MAX_RANKS = 1 << 14
_MATCHED = ("group", "sequence")
"""Columns that matching fills."""


class SparseColumn:
    """A column that is NONE but for a few rows."""

    __slots__ = ("_rows", "_values")

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows = np.unique(np.array(rows, dtype=np.int64))
        self._values = np.full(len(self._rows), NONE, dtype=np.int32)

    def append(self, first_row: int, values: I4) -> None:
        """Adds the values of rows from ``first_row`` on, which come after all others."""
        rows = np.arange(first_row, first_row + len(values))
        self._rows = np.concatenate([self._rows, rows])
        self._values = np.concatenate([self._values, values])

    def __getitem__(self, row: int) -> int:
        return int(self._values[self._rows.searchsorted(row)])

    def __setitem__(self, row: int, value: int) -> None:
        if not self._values.flags.writeable:  # as workers of a cluster return arrays
            self._values = self._values.copy()
        self._values[self._rows.searchsorted(row)] = value

    def whole(self, size: int) -> I4:
        column = np.full(size, NONE, dtype=np.int32)
        column[self._rows] = self._values
        return column


@dataclass(frozen=True, slots=True)
class MatchedColumns:
    """Group and sequence of one rank's collectives, by row of its events."""

    group: SparseColumn
    sequence: SparseColumn


@dataclass(kw_only=True)
class StagedRank:
    """Facts of one rank; its events are in ``file``."""

    source: Path
    rank: int
    """NONE until the ranks of all traces are known."""
    stated_rank: int | None
    host: str
    world_size: int | None
    steps: list[AnnotatedStep]
    step_source: StepSource
    collectives: list[Collective]
    matched: MatchedColumns
    num_events: int
    launches_alone: list[tuple[int, OpKind]]
    """Launches of collectives without a kernel, in order of time: row and kind."""
    num_read: int
    """Events of the trace; those that were restored come after them."""
    strings: list[str]
    streams: list[tuple[StreamKind, str]]
    allocations: StagedAllocations
    device_memory_bytes: int | None
    file: Path
    unpacked_bytes: int
    file_ledger: Ledger
    """Anomalies of the file, and below those of the rank."""
    ledger: Ledger

    def load(self) -> MutableEvents:
        """Returns all events, with numbers of this rank."""
        own = _read_columns(self.file, self.num_events)
        own.group[:] = self.matched.group.whole(self.num_events)
        own.sequence[:] = self.matched.sequence.whole(self.num_events)
        return own

    def store_steps(self, step: I4) -> None:
        """Writes the steps of all events."""
        own = _read_columns(self.file, self.num_events)
        own.step[:] = step
        self._store(own)

    def append(self, added: MutableEvents) -> None:
        """Adds events behind the others."""
        self.matched.group.append(self.num_events, added.group)
        self.matched.sequence.append(self.num_events, added.sequence)
        own = _read_columns(self.file, self.num_events)
        columns = {
            entry.name: np.concatenate([getattr(own, entry.name), getattr(added, entry.name)])
            for entry in fields(MutableEvents)
        }
        self.num_events += len(added)
        self._store(MutableEvents(**columns))

    def string_number(self, string: str) -> int:
        """Returns this rank's number of the string, which may be new."""
        if string not in self.strings:
            self.strings.append(string)
        return self.strings.index(string)

    @property
    def are_on_device(self) -> NDArray[np.bool_]:
        """Whether each stream belongs to a device."""
        device = (StreamKind.DEVICE, StreamKind.COMMUNICATION)
        return np.array([kind in device for kind, _ in self.streams], dtype=bool)

    def finished(self, clock: Clock, builder: TraceBuilder, first_row: int) -> Events:
        """Returns the events on the common clock, with numbers of the whole trace; the rank's
        first event will be row ``first_row``. Removes the file."""
        own = self.load()
        self.file.unlink()
        string, stream = self._numbers_in(builder)
        own.name = string[own.name]
        own.layer = string[own.layer]
        own.stream = stream[own.stream]
        own.move_to(clock)
        return rank_events(self.rank, own, builder.stream_kinds(), first_row)

    def finished_allocations(
        self, clock: Clock, builder: TraceBuilder, first_row: int
    ) -> Allocations:
        """Returns the allocations as ``finished`` does the events. Removes their file."""
        string, stream = self._numbers_in(builder)
        return self.allocations.finished(
            self.rank, clock, string=string, stream=stream, first_row=first_row
        )

    def _numbers_in(self, builder: TraceBuilder) -> tuple[I4, I4]:
        """Returns the numbers of this rank's strings and streams in the whole trace."""
        return (
            _numbers(builder.strings.number(each) for each in self.strings),
            _numbers(builder.stream(self.rank, *each) for each in self.streams),
        )

    def _store(self, own: MutableEvents) -> None:
        self.file.unlink()
        _write_columns(self.file, own)


def stage_rank(path: Path, file: Path, *, budget: ReadBudget) -> StagedRank:
    """Reads one trace and leaves its events in the new ``file``."""
    left_bytes = budget.left_bytes
    file_ledger, ledger, builder = Ledger(), Ledger(), TraceBuilder()
    trace = read_kineto(path, file_ledger, budget)
    if not len(trace) and "absurd-time" in file_ledger:
        raise InputError(
            f"{path} has no event with a possible time",
            remedy="give times in microseconds, as export_chrome_trace writes them",
        )
    if not len(trace):
        raise InputError(f"{path} has no events", remedy="leave it out")
    steps, step_source = found_steps(trace, main_thread(trace))
    ledger.note(
        "unmarked-steps",
        "a trace has neither annotated steps nor updates: its steps are periods of its operations,"
        " or it is one step",
        severity=Severity.INFO,
        count=int(step_source == StepSource.PERIODS),
        remedy="call step() of the profiler after each step",
        example=path.name,
    )
    own = read_kineto_rank(trace, annotated_step_at(steps, trace.start_ns), ledger)
    own.fill_names(builder)
    for item in own.collectives:
        own.events.kind[item.row] = item.kind
        own.events.size_bytes[item.row] = item.traced_bytes
    fill_unlaunched_kernels(own.events, trace)
    own.fill_streams(0, np.ones(len(trace), dtype=bool), builder)
    for item in own.collectives:
        item.step = int(own.events.step[item.row])
        item.stream = int(own.events.stream[item.row])
    _write_columns(file, own.events)
    rows = [item.row for item in own.collectives]
    return StagedRank(
        source=path,
        rank=NONE,
        stated_rank=trace.distributed.rank,
        host=trace.host,
        world_size=trace.distributed.world_size,
        steps=steps,
        step_source=step_source,
        collectives=own.collectives,
        matched=MatchedColumns(SparseColumn(rows), SparseColumn(rows)),
        num_events=len(trace),
        num_read=len(trace),
        launches_alone=_launches_alone(trace, own.events),
        strings=builder.strings.in_order(),
        streams=[(kind, name) for _, kind, name in builder.stream_keys()],
        allocations=StagedAllocations.store(
            file.with_suffix(".allocations"), allocations_of(trace, own.events)
        ),
        device_memory_bytes=_device_memory(trace),
        file=file,
        unpacked_bytes=left_bytes - budget.left_bytes,
        file_ledger=file_ledger,
        ledger=ledger,
    )


def _device_memory(trace: KinetoTrace) -> int | None:
    """Returns the memory of the rank's device, if the trace describes it: the one of its
    allocations, else that of its kernels, or any if all are alike."""
    sizes = set(trace.capacities.values())
    if len(trace.allocations):
        return trace.capacities.get(trace.allocations.device)
    used = {each.pid for each in trace.threads if each.is_device}
    found = {size for device, size in trace.capacities.items() if device in used} or sizes
    return found.pop() if len(found) == 1 else None


def _launches_alone(trace: KinetoTrace, events: MutableEvents) -> list[tuple[int, OpKind]]:
    launches = np.flatnonzero(events.kind == OpKind.LAUNCH)
    alone = launches[~np.isin(launches, events.cause[events.cause != NONE])]
    found = []
    for row in alone[np.argsort(events.start_ns[alone], kind="stable")].tolist():
        names = [trace.name[around] for around in ranges_around(trace, row)]
        kind = next((k for name in names if (k := collective_kind(name)) is not None), None)
        if kind is not None:
            found.append((row, kind))
    return found


def _numbers(found: Iterable[int]) -> I4:
    """Numbers of the whole trace by numbers of the rank, with NONE at the end, where -1 points."""
    return np.array([*found, NONE], dtype=np.int32)


def _stored() -> list[str]:
    return [entry.name for entry in fields(MutableEvents) if entry.name not in _MATCHED]


def _write_columns(path: Path, events: MutableEvents) -> None:
    with new_file(path) as file:
        for name in _stored():
            file.write(memoryview(getattr(events, name)).cast("B"))


def _read_columns(path: Path, size: int) -> MutableEvents:
    blank = np.zeros(size, dtype=np.int64)
    own = MutableEvents.blank(blank, blank)
    with path.open("rb") as file:
        for name in _stored():
            values: NDArray[np.generic] = getattr(own, name)
            file.readinto(memoryview(values).cast("B"))  # type: ignore[arg-type]
    return own
