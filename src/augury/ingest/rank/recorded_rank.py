"""Reads all windows of one recorded rank and adds the facts of its rank record.

A window's trace is read as any other Kineto trace. The rank record adds the steps of each window,
DDP's buckets, Python's calls and the pieces of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.enums import OpKind, Phase, StreamKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import RankRecord, RecordedCall, RecordedWindow
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT
from augury.ingest.collectives.calls import (
    in_order_of_calls,
    match_buckets,
    match_calls,
    note_calls_without_event,
    note_unknown_sizes,
    sizes_by_position,
)
from augury.ingest.collectives.launch_times import (
    from_gradients,
    from_launches,
    in_order_of_launch,
    ready_order,
)
from augury.ingest.collectives.p2p_exchanges import is_exchange
from augury.ingest.collectives.piece_collectives import (
    is_piece,
    spans_without_events,
    step_of_piece,
)
from augury.ingest.collectives.rank_collectives import MAX_SIZE_BYTES, Collective
from augury.ingest.formats.kineto import KinetoTrace, read_kineto
from augury.ingest.rank.device_phases import fill_unlaunched_kernels
from augury.ingest.rank.kineto_rank import KinetoRank, read_kineto_rank
from augury.ingest.rank.phases_and_layers import backward_nodes
from augury.ingest.rank.steps import step_at, window_closed_ns, window_steps
from augury.ingest.run_files import ReadBudget, RunLimitError
from augury.ingest.trace_builder import MutableEvents, TraceBuilder
from augury.ingest.vocabulary.torch import collective_kind


@dataclass(kw_only=True)
class RecordedRank:
    record: RankRecord
    parts: list[MutableEvents] = field(default_factory=list)
    """Events of each window, then those of calls without events and of waits."""
    collectives: list[Collective] = field(default_factory=list)


@dataclass(kw_only=True)
class _Window:
    window: RecordedWindow
    kineto: KinetoRank
    nodes: list[int]
    """Rows of backward nodes within the window's steps."""
    collectives: list[Collective]

    @property
    def step(self) -> I4:
        return self.kineto.events.step


def read_rank(
    folder: Path, record: RankRecord, builder: TraceBuilder, ledger: Ledger, budget: ReadBudget
) -> RecordedRank:
    windows: list[_Window] = []
    for window in record.all_windows:
        trace = _open_trace(folder, window, ledger, budget)
        if trace is not None and len(trace):
            windows.append(_read_window(record, window, trace, len(windows), ledger))
    rank = RecordedRank(record=record)
    for one in windows:
        rank.collectives += one.collectives
    step_of = _steps_of_calls(record, windows)
    unmatched = match_calls(rank.collectives, step_of)
    for item in rank.collectives:
        if item.call is not None:
            # All ranks call in the same step, even if the collective runs in a later one.
            item.step = step_of[item.call]
    rank.collectives = [item for item in rank.collectives if item.step != NONE]
    eventless = [
        call for call in unmatched if step_of[call] != NONE and _has_no_event(record, call)
    ]
    spans = spans_without_events(
        [call for call in eventless if is_piece(record, call)],
        [item for item in rank.collectives if item.call and is_piece(record, item.call)],
    )
    note_calls_without_event(
        [call for call in unmatched if not _has_no_event(record, call)], ledger
    )
    match_buckets(rank.collectives, record.ddp, ledger)
    sizes_by_position(rank.collectives)
    note_unknown_sizes(rank.collectives, ledger)
    for number, one in enumerate(windows):
        one.collectives = [item for item in rank.collectives if item.window == number]
        from_launches(one.collectives, one.kineto.trace, one.step.tolist())
        if not one.window.is_detailed:
            without_launch = [c for c in one.collectives if c.cause == NONE]
            nodes = [(int(one.step[i]), i) for i in one.nodes]
            from_gradients(without_launch, one.kineto.trace, nodes, record.ddp)
    _fill_gradient_layers(record, windows)
    _copy_layers_to_light_windows(windows)
    for one in windows:
        rank.parts.append(_window_events(record, one, builder))
    _add_calls(rank, {call: step_of[call] for call in eventless}, spans, builder)
    rank.collectives = in_order_of_calls(rank.collectives)
    return rank


def _open_trace(
    folder: Path, window: RecordedWindow, ledger: Ledger, budget: ReadBudget
) -> KinetoTrace | None:
    if window.trace is None:
        return None
    try:
        return read_kineto(folder / window.trace, ledger, budget)
    except RunLimitError:
        raise
    except InputError as error:
        ledger.note(
            "unreadable-trace",
            "the trace of a window cannot be read",
            severity=Severity.ERROR,
            remedy=error.remedy,
            example=error.cause[:300],
        )
        return None


def _read_window(
    record: RankRecord, window: RecordedWindow, trace: KinetoTrace, number: int, ledger: Ledger
) -> _Window:
    kineto = read_kineto_rank(trace, window_steps(record, window, trace, ledger), ledger)
    step = kineto.events.step
    collectives = [item for item in kineto.collectives if step[item.row] != NONE]
    for item in collectives:
        item.window = number
        item.step = int(step[item.row])
        if item.is_on_device:
            item.size_bytes = item.traced_bytes
    # Kernels of several streams: the order of their launches is the same on all ranks.
    collectives.sort(key=lambda item: item.arrival_ns if item.is_on_device else item.start_ns)
    nodes = backward_nodes(trace, kineto.events.phase)
    return _Window(
        window=window,
        kineto=kineto,
        nodes=[i for i in nodes if step[i] != NONE],
        collectives=in_order_of_launch(collectives, trace),
    )


def _steps_of_calls(record: RankRecord, windows: list[_Window]) -> dict[RecordedCall, int]:
    """Step of each call; NONE for a call of a step before the window. Calls in windows without a
    trace are left out."""
    calls = [call for call in record.calls if not is_exchange(record, call)]
    if not calls:
        return {}
    steps = step_at(record, np.array([call.start_ns for call in calls], dtype=np.int64))
    found: dict[RecordedCall, int] = {}
    for one in windows:
        window = one.window
        closed_ns, backward_ns = window_closed_ns(record, window), _first_backward_ns(one)
        for call, step in zip(calls, steps.tolist(), strict=True):
            is_inside = window.first < step <= window.last
            if is_piece(record, call):
                if is_inside or (step > window.last and call.start_ns < closed_ns):
                    piece_step = step_of_piece(call, backward_ns)
                    found[call] = NONE if piece_step is None else piece_step
            elif is_inside:
                found[call] = step
    return found


def _first_backward_ns(one: _Window) -> dict[int, int]:
    """Start of the first backward node of each step."""
    found: dict[int, int] = {}
    for i in one.nodes:
        step, start_ns = int(one.step[i]), int(one.kineto.trace.start_ns[i])
        found[step] = min(start_ns, found.get(step, start_ns))
    return found


def _has_no_event(record: RankRecord, call: RecordedCall) -> bool:
    """Gloo records no events of sends and receives, nor of pieces that its threads launch."""
    kind = collective_kind(call.kind)
    return kind in (OpKind.SEND, OpKind.RECV) or is_piece(record, call)


def _fill_gradient_layers(record: RankRecord, windows: list[_Window]) -> None:
    """The i-th accumulated gradient of a backward pass is the i-th in the ready order."""
    order = ready_order(record.ddp)
    names = [record.ddp[one].parameters[i].name for one, i in order]
    if not names:
        return
    for one in windows:
        by_step: dict[int, list[int]] = {}
        for i in one.nodes:
            if one.kineto.trace.name[i] == ACCUMULATES_GRADIENT:
                by_step.setdefault(int(one.step[i]), []).append(i)
        layers = {
            i: names[position % len(names)].rpartition(".")[0]
            for rows in by_step.values()
            if len(rows) % len(names) == 0
            for position, i in enumerate(rows)
        }
        one.kineto.set_layers(layers)


def _copy_layers_to_light_windows(windows: list[_Window]) -> None:
    """Backward nodes of light windows get the layers of a detail step with the same nodes."""
    known: dict[tuple[str, ...], list[str]] = {}
    light_steps: list[tuple[KinetoRank, list[int]]] = []
    for one in windows:
        by_step: dict[int, list[int]] = {}
        for i in one.nodes:
            by_step.setdefault(int(one.step[i]), []).append(i)
        for rows in by_step.values():
            if one.window.is_detailed:
                names = tuple(one.kineto.trace.name[i] for i in rows)
                known.setdefault(names, [one.kineto.layer[i] for i in rows])
            else:
                light_steps.append((one.kineto, rows))
    for kineto, rows in light_steps:
        found = known.get(tuple(kineto.trace.name[i] for i in rows))
        if found is not None:
            layers = dict(zip(rows, found, strict=True))
            kineto.set_layers({i: layers[i] for i in rows if not kineto.layer[i]})


def _window_events(record: RankRecord, one: _Window, builder: TraceBuilder) -> MutableEvents:
    """Events within the window's steps."""
    events = one.kineto.events
    one.kineto.fill_names(builder)
    on_threads = one.step != NONE
    on_threads[[item.row for item in one.collectives if not item.is_on_device]] = False
    one.kineto.fill_streams(record.rank, on_threads, builder)
    _end_with_step(record, one)
    phase = events.phase.copy()
    for item in one.collectives:
        events.kind[item.row] = item.kind
        events.step[item.row] = item.step
        events.size_bytes[item.row] = item.size_bytes
        events.arrival_ns[item.row] = item.arrival_ns
        events.cause[item.row] = item.cause
        events.phase[item.row] = Phase.NONE if item.bucket == NONE else Phase.BACKWARD
        if not item.is_on_device:
            events.stream[item.row] = _communicator_stream(record, item.group, builder)
        if item.cause != NONE:
            events.phase[item.row] = phase[item.cause]
            events.kind[item.cause] = OpKind.LAUNCH
    fill_unlaunched_kernels(events, one.kineto.trace)
    return _only(events, one.step != NONE, one.collectives)


def _communicator_stream(record: RankRecord, group: str | None, builder: TraceBuilder) -> int:
    return builder.stream(record.rank, StreamKind.COMMUNICATION, f"group {group or '0'}")


def _end_with_step(record: RankRecord, one: _Window) -> None:
    """Cuts events at the end of their step: the recorder's own work lies in the optimizer's."""
    events = one.kineto.events
    ends_ns = np.array(record.step_end_ns, dtype=np.int64)
    inside = (one.step != NONE) & (one.kineto.trace.thread == one.kineto.main_thread)
    limit_ns = ends_ns[np.clip(one.step[inside] - 1, 0, len(ends_ns) - 1)]
    events.dur_ns[inside] = np.minimum(events.dur_ns[inside], limit_ns - events.start_ns[inside])


def _only(
    events: MutableEvents, keep: NDArray[np.bool_], collectives: list[Collective]
) -> MutableEvents:
    new_row = np.cumsum(keep) - 1
    for item in collectives:
        item.row = int(new_row[item.row])
    kept = MutableEvents(**{name: values[keep] for name, values in vars(events).items()})
    has_cause = kept.cause != NONE
    cause = kept.cause[has_cause]
    kept.cause[has_cause] = np.where(keep[cause], new_row[cause], NONE)
    return kept


def _add_calls(
    rank: RecordedRank,
    steps: dict[RecordedCall, int],
    spans: dict[RecordedCall, tuple[int, int]],
    builder: TraceBuilder,
) -> None:
    """Adds events for calls that left none. ``steps`` has the step of each call, ``spans`` start
    and end of those that differ from the call's own."""
    if not steps:
        return
    record = rank.record
    times_ns = [spans.get(call, (call.start_ns, call.end_ns)) for call in steps]
    start = np.array([start_ns for start_ns, _ in times_ns], dtype=np.int64)
    end = np.array([end_ns for _, end_ns in times_ns], dtype=np.int64)
    events = MutableEvents.blank(start, np.maximum(end - start, 0))
    for row, ((call, step), (start_ns, end_ns)) in enumerate(
        zip(steps.items(), times_ns, strict=True)
    ):
        kind = collective_kind(call.kind)
        assert kind is not None
        events.kind[row] = kind
        events.step[row] = step
        events.arrival_ns[row] = call.start_ns
        events.size_bytes[row] = min(max(0, call.size_bytes), MAX_SIZE_BYTES)
        events.name[row] = builder.strings.number(kind.label)
        events.stream[row] = _communicator_stream(record, call.group, builder)
        rank.collectives.append(
            Collective(
                window=len(rank.parts),
                row=row,
                kind=kind,
                step=step,
                start_ns=start_ns,
                end_ns=end_ns,
                arrival_ns=call.start_ns,
                group=call.group,
                peer=call.peer,
                call=call,
                size_bytes=call.size_bytes,
                is_estimated=True,
            )
        )
    rank.parts.append(events)
