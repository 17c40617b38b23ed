"""All windows of one rank: its events, with what the recorder told beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, U1
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase, StreamKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.trace.rank_record import RankRecord, RecordedCall, RecordedWindow
from augury.ingest.collectives.calls import (
    Collective,
    in_order_of_calls,
    note_unseen,
    of_calls,
    of_ddp,
    sizes_by_position,
    tensor_bytes,
    unsized,
)
from augury.ingest.collectives.launch_times import (
    from_gradients,
    from_launches,
    in_order_of_launch,
    ready_order,
)
from augury.ingest.collectives.p2p_exchanges import is_swap
from augury.ingest.collectives.piece_collectives import is_piece, spans_of_unseen, step_of_piece
from augury.ingest.formats.kineto import KinetoTrace, read_kineto
from augury.ingest.rank.event_names import ACCUMULATE, collective_kind
from augury.ingest.rank.layers import backward_nodes, layers
from augury.ingest.rank.phases import phases
from augury.ingest.rank.steps import step_at, step_starts
from augury.ingest.run_files import ReadBudget, RunLimitError
from augury.ingest.trace_builder import Draft, Workshop

GLOO = "gloo:"


@dataclass(kw_only=True)
class RecordedRank:
    record: RankRecord
    drafts: list[Draft] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)


@dataclass(kw_only=True)
class _View:
    """One window while it is read."""

    window: RecordedWindow
    trace: KinetoTrace
    step: I4
    phase: U1
    layer: list[str]
    nodes: list[int]
    collectives: list[Collective]


def read_rank(
    folder: Path, record: RankRecord, workshop: Workshop, ledger: Ledger, budget: ReadBudget
) -> RecordedRank:
    views: list[_View] = []
    for window in record.all_windows:
        trace = _open(folder, window, ledger, budget)
        if trace is not None and len(trace):
            views.append(_look(record, window, trace, len(views), ledger))
    rank = RecordedRank(record=record)
    for view in views:
        rank.collectives += view.collectives
    step_of = _steps_of_calls(record, views)
    left = of_calls(rank.collectives, step_of)
    for item in rank.collectives:
        if item.call is not None:
            # All ranks ask in the same step, be it in another one that they get it.
            item.step = step_of[item.call]
    rank.collectives = [item for item in rank.collectives if item.step != NONE]
    alone = [call for call in left if step_of[call] != NONE and _stands_for_itself(record, call)]
    spans = spans_of_unseen(
        [call for call in alone if is_piece(record, call)],
        [item for item in rank.collectives if item.call and is_piece(record, item.call)],
    )
    note_unseen([call for call in left if not _stands_for_itself(record, call)], ledger)
    of_ddp(rank.collectives, record.ddp, ledger)
    sizes_by_position(rank.collectives)
    unsized(rank.collectives, ledger)
    for number, view in enumerate(views):
        view.collectives = [item for item in rank.collectives if item.window == number]
        from_launches(view.collectives, view.trace, view.step.tolist())
        if not view.window.is_detailed:
            made = [c for c in view.collectives if c.cause == NONE]
            nodes = [(int(view.step[i]), i) for i in view.nodes]
            from_gradients(made, view.trace, nodes, record.ddp)
    _layers_of_gradients(record, views)
    _layers_by_position(views)
    for view in views:
        rank.drafts.append(_draft(record, view, workshop))
    _draft_calls(rank, {call: step_of[call] for call in alone}, spans, workshop)
    rank.collectives = in_order_of_calls(rank.collectives)
    return rank


def _closed_ns(record: RankRecord, window: RecordedWindow) -> int:
    """When the job was let go after the window's last step."""
    return max((at_ns for step, at_ns in record.resumed if step == window.last), default=0)


def _open(
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
            "a window's trace cannot be read",
            severity=Severity.ERROR,
            remedy=error.remedy,
            example=error.cause[:300],
        )
        return None


def _look(
    record: RankRecord, window: RecordedWindow, trace: KinetoTrace, number: int, ledger: Ledger
) -> _View:
    step = step_at(record, trace.start_ns)
    outside = (step <= window.first) | (step > window.last)
    starts = step_starts(record)
    if window.first < len(starts):
        outside |= trace.start_ns < starts[window.first]
    late = np.zeros(len(step), dtype=bool)
    late[[*trace.named(GLOO)]] = True
    # Without a barrier a step's last collectives may run when it is over.
    late &= outside & (step > window.last) & (trace.start_ns < _closed_ns(record, window))
    outside &= ~late
    step[outside] = NONE
    step[late] = window.last
    far = outside & (np.abs(trace.start_ns - (record.step_end_ns or [0])[-1]) > 10**15)
    ledger.note(
        "outside-window",
        "an event lies days away from the job that it is said to be of",
        count=int(far.sum()),
        example=window.trace or "",
    )
    phase = phases(trace)
    collectives = []
    for i in sorted(trace.named(GLOO), key=trace.start_ns.__getitem__):
        kind = collective_kind(trace.name[i])
        if kind is None or step[i] == NONE:
            continue
        start = int(trace.start_ns[i])
        collectives.append(
            Collective(
                window=number,
                row=i,
                kind=kind,
                step=int(step[i]),
                start_ns=start,
                end_ns=start + int(trace.dur_ns[i]),
                arrival_ns=start,
                shaped_bytes=tensor_bytes(trace.args[i]),
            )
        )
    return _View(
        window=window,
        trace=trace,
        step=step,
        phase=phase,
        layer=layers(trace, phase),
        nodes=[i for i in backward_nodes(trace, phase) if step[i] != NONE],
        collectives=in_order_of_launch(collectives, trace),
    )


def _steps_of_calls(record: RankRecord, views: list[_View]) -> dict[RecordedCall, int]:
    """By call, the step that it belongs to; NONE: one before the window. Calls are recorded within
    windows; those of a window without a trace are of no use."""
    calls = [call for call in record.calls if not is_swap(record, call)]
    if not calls:
        return {}
    steps = step_at(record, np.array([call.start_ns for call in calls], dtype=np.int64))
    found: dict[RecordedCall, int] = {}
    for view in views:
        window = view.window
        closed_ns, backward_ns = _closed_ns(record, window), _first_backwards(view)
        for call, step in zip(calls, steps.tolist(), strict=True):
            is_inside = window.first < step <= window.last
            if is_piece(record, call):
                if is_inside or (step > window.last and call.start_ns < closed_ns):
                    of_step = step_of_piece(call, backward_ns)
                    found[call] = NONE if of_step is None else of_step
            elif is_inside:
                found[call] = step
    return found


def _first_backwards(view: _View) -> dict[int, int]:
    """When the first backward of each step began."""
    found: dict[int, int] = {}
    for i in view.nodes:
        step, start_ns = int(view.step[i]), int(view.trace.start_ns[i])
        found[step] = min(start_ns, found.get(step, start_ns))
    return found


def _stands_for_itself(record: RankRecord, call: RecordedCall) -> bool:
    """Sends and receives leave no events of gloo's own, nor do pieces that its threads ask for."""
    kind = collective_kind(call.kind)
    return kind in (OpKind.SEND, OpKind.RECV) or is_piece(record, call)


def _layers_of_gradients(record: RankRecord, views: list[_View]) -> None:
    """The i-th gradient of a backward is the i-th in the ready order."""
    order = ready_order(record.ddp)
    names = [record.ddp[one].parameters[i].name for one, i in order]
    if not names:
        return
    for view in views:
        by_step: dict[int, list[int]] = {}
        for i in view.nodes:
            if view.trace.name[i] == ACCUMULATE:
                by_step.setdefault(int(view.step[i]), []).append(i)
        for rows in by_step.values():
            if len(rows) % len(names) == 0:
                for at, i in enumerate(rows):
                    view.layer[i] = names[at % len(names)].rpartition(".")[0]


def _layers_by_position(views: list[_View]) -> None:
    """Backward nodes of light windows work for the same layers as those of a detail step that
    ran the same nodes."""
    known: dict[tuple[str, ...], list[str]] = {}
    steps: list[tuple[_View, list[int]]] = []
    for view in views:
        by_step: dict[int, list[int]] = {}
        for i in view.nodes:
            by_step.setdefault(int(view.step[i]), []).append(i)
        for rows in by_step.values():
            if view.window.is_detailed:
                names = tuple(view.trace.name[i] for i in rows)
                known.setdefault(names, [view.layer[i] for i in rows])
            else:
                steps.append((view, rows))
    for view, rows in steps:
        found = known.get(tuple(view.trace.name[i] for i in rows))
        if found is not None:
            for i, layer in zip(rows, found, strict=True):
                view.layer[i] = view.layer[i] or layer


def _draft(record: RankRecord, view: _View, workshop: Workshop) -> Draft:
    trace = view.trace
    draft = Draft.blank(trace.start_ns, trace.dur_ns)
    number = workshop.strings.number
    draft.name[:] = [number(name) for name in trace.name]
    draft.layer[:] = [number(layer) if layer else NONE for layer in view.layer]
    draft.step[:] = view.step
    draft.phase[:] = view.phase
    main = main_thread(trace)
    used = view.step != NONE
    used[[item.row for item in view.collectives]] = False
    for at in np.unique(trace.thread[used]).tolist():
        draft.stream[trace.thread == at] = (
            workshop.stream(record.rank, StreamKind.MAIN_THREAD, "main thread")
            if at == main
            else workshop.stream(record.rank, StreamKind.THREAD, trace.threads[at].name)
        )
    kinds = np.array([KIND_OF_PHASE[phase] for phase in Phase], dtype=np.uint8)
    draft.kind[:] = kinds[view.phase]
    _end_with_step(record, view, draft, main)
    for item in view.collectives:
        draft.kind[item.row] = item.kind
        draft.step[item.row] = item.step
        draft.size_bytes[item.row] = item.size_bytes
        draft.arrival_ns[item.row] = item.arrival_ns
        draft.cause[item.row] = item.cause
        draft.phase[item.row] = Phase.NONE if item.bucket == NONE else Phase.BACKWARD
        draft.stream[item.row] = _communicator(record, item.group, workshop)
        if item.cause != NONE:
            draft.phase[item.row] = view.phase[item.cause]
            draft.kind[item.cause] = OpKind.LAUNCH
    return _only(draft, view.step != NONE, view.collectives)


def _communicator(record: RankRecord, group: str | None, workshop: Workshop) -> int:
    return workshop.stream(record.rank, StreamKind.COMMUNICATION, f"group {group or '0'}")


def _end_with_step(record: RankRecord, view: _View, draft: Draft, main: int) -> None:
    """The recorder's own work at the end of a step lies within the optimizer's event."""
    ends = np.array(record.step_end_ns, dtype=np.int64)
    inside = (view.step != NONE) & (view.trace.thread == main)
    limit = ends[np.clip(view.step[inside] - 1, 0, len(ends) - 1)]
    draft.dur_ns[inside] = np.minimum(draft.dur_ns[inside], limit - draft.start_ns[inside])


def _only(draft: Draft, keep: NDArray[np.bool_], collectives: list[Collective]) -> Draft:
    place = np.cumsum(keep) - 1
    for item in collectives:
        item.row = int(place[item.row])
    kept = Draft(**{name: values[keep] for name, values in vars(draft).items()})
    caused = kept.cause != NONE
    launcher = kept.cause[caused]
    kept.cause[caused] = np.where(keep[launcher], place[launcher], NONE)
    return kept


def main_thread(trace: KinetoTrace) -> int:
    """The one that updates parameters; else the busiest that is no device's."""
    for prefix in ("Optimizer.step#", "Optimizer.zero_grad#", "ProfilerStep#"):
        row = next(trace.named(prefix), None)
        if row is not None:
            return int(trace.thread[row])
    counts = np.bincount(trace.thread, minlength=len(trace.threads))
    counts[[thread.is_device for thread in trace.threads]] = -1
    return int(counts.argmax())


def _draft_calls(
    rank: RecordedRank,
    steps: dict[RecordedCall, int],
    spans: dict[RecordedCall, tuple[int, int]],
    workshop: Workshop,
) -> None:
    """Calls that stand for communication without events: ``steps`` has the step of each, ``spans``
    the time of those that took another than that of the call."""
    if not steps:
        return
    record = rank.record
    times = [spans.get(call, (call.start_ns, call.end_ns)) for call in steps]
    start = np.array([start_ns for start_ns, _ in times], dtype=np.int64)
    end = np.array([end_ns for _, end_ns in times], dtype=np.int64)
    draft = Draft.blank(start, np.maximum(end - start, 0))
    for row, ((call, step), (start_ns, end_ns)) in enumerate(
        zip(steps.items(), times, strict=True)
    ):
        kind = collective_kind(call.kind)
        assert kind is not None
        draft.kind[row] = kind
        draft.step[row] = step
        draft.arrival_ns[row] = call.start_ns
        draft.size_bytes[row] = min(max(0, call.size_bytes), 1 << 60)
        draft.name[row] = workshop.strings.number(kind.label)
        draft.stream[row] = _communicator(record, call.group, workshop)
        rank.collectives.append(
            Collective(
                window=len(rank.drafts),
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
    rank.drafts.append(draft)
