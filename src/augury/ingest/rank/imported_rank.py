"""One rank's trace as somebody else's profiler wrote it: threads, streams, kernels, collectives."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np

from augury.core.columns import I4
from augury.core.enums import KIND_OF_PHASE, OpKind, Phase, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.ingest.collectives.calls import tensor_bytes
from augury.ingest.formats.kineto import Args, KinetoTrace
from augury.ingest.rank.event_names import collective_kind, element_bytes
from augury.ingest.rank.kernel_launches import draft_device
from augury.ingest.rank.phases import phases
from augury.ingest.rank.recorded_rank import main_thread
from augury.ingest.trace_builder import Draft, Workshop

_NCCL = re.compile(r"^(ncclDevKernel|ncclKernel|rcclDevKernel|rccl|nccl)", re.IGNORECASE)
_ANNOTATION = re.compile(r"^(nccl|rccl|gloo|c10d|record_param_comms)")
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_ranks = msgspec.json.Decoder(list[int])
_text = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class Found:
    """A collective as one rank saw it."""

    row: int
    kind: OpKind
    size_bytes: int
    group: tuple[int, ...] | None
    """None: nothing says; then all ranks."""
    communicator: str
    number: int | None


@dataclass(kw_only=True)
class ImportedRank:
    rank: int
    trace: KinetoTrace
    draft: Draft
    found: list[Found]
    steps: list[tuple[int, int, int, StepState]]
    """Number, start, end."""


def import_rank(rank: int, trace: KinetoTrace, workshop: Workshop, ledger: Ledger) -> ImportedRank:
    draft = Draft.blank(trace.start_ns, trace.dur_ns)
    draft.name[:] = [workshop.strings.number(name) for name in trace.name]
    draft.phase[:] = phases(trace)
    main = main_thread(trace)
    steps = _steps(trace, main)
    draft.step[:] = _step_at(trace, steps)
    draft_device(draft, trace, ledger)
    kinds = np.array([KIND_OF_PHASE[phase] for phase in Phase], dtype=np.uint8)
    plain = draft.kind == OpKind.OTHER
    draft.kind[plain] = kinds[draft.phase[plain]]
    found = _collectives(trace, draft)
    for item in found:
        draft.kind[item.row] = item.kind
        draft.size_bytes[item.row] = item.size_bytes
    _streams(rank, trace, draft, main, {item.row for item in found}, workshop)
    return ImportedRank(rank=rank, trace=trace, draft=draft, found=found, steps=steps)


def _steps(trace: KinetoTrace, main: int) -> list[tuple[int, int, int, StepState]]:
    """As the profiler's schedule numbered them; else from one optimizer's step to the next."""
    found = []
    for i in trace.named("ProfilerStep#"):
        said = _PROFILER_STEP.match(trace.name[i])
        if said and len(said[1]) < 9 and trace.thread[i] == main:
            start = int(trace.start_ns[i])
            found.append((int(said[1]), start, start + int(trace.dur_ns[i]), StepState.TIMED))
    if not found:
        ends = [
            int(trace.start_ns[i] + trace.dur_ns[i])
            for i in trace.named("Optimizer.step#")
            if trace.thread[i] == main
        ]
        begins = [int(trace.start_ns.min()), *ends]
        found = [
            (number, start, end, StepState.TIMED if number > 1 else StepState.DISTURBED)
            for number, (start, end) in enumerate(zip(begins, ends, strict=False), start=1)
        ]
    if not found:
        whole = int(trace.start_ns.min()), int((trace.start_ns + trace.dur_ns).max())
        return [(1, *whole, StepState.TIMED)]
    unique = {number: (number, *rest) for number, *rest in sorted(found, reverse=True)}
    return sorted(unique.values())  # type: ignore[arg-type]


def _step_at(trace: KinetoTrace, steps: list[tuple[int, int, int, StepState]]) -> I4:
    """Between two steps belongs to the one before: work launched there is still running."""
    starts = np.array([start for _, start, _, _ in steps], dtype=np.int64)
    numbers = np.array([NONE, *(number for number, _, _, _ in steps)], dtype=np.int32)
    found: I4 = numbers[np.searchsorted(starts, trace.start_ns, side="right")]
    return found


def _collectives(trace: KinetoTrace, draft: Draft) -> list[Found]:
    """Kernels of NCCL and RCCL; on CPUs, gloo's own events."""
    found = []
    groups = {
        str(group.pg_name): tuple(sorted(group.ranks)) for group in trace.distributed.pg_config
    }
    for i, name in enumerate(trace.name):
        if trace.category[i] == "kernel" and _NCCL.match(name):
            said = _annotations(trace, int(draft.cause[i]))
        elif name.startswith("gloo:"):
            said = [i]
        else:
            continue
        told = [trace.args[i], *(trace.args[at] for at in said)]
        names = [args.collective or "" for args in told]
        names += [trace.name[at] for at in said] + [name]
        kind = next((k for n in names if n and (k := collective_kind(n)) is not None), None)
        if kind is None:
            continue
        found.append(
            Found(
                row=i,
                kind=kind,
                size_bytes=next((size for args in told if (size := _size(args))), 0),
                group=next((ranks for args in told if (ranks := _group(args, groups))), None),
                communicator=_communicator(trace, i, told),
                number=next(
                    (a.collective_number for a in told if a.collective_number is not None), None
                ),
            )
        )
    return sorted(found, key=lambda item: int(draft.start_ns[item.row]))


def _annotations(trace: KinetoTrace, row: int) -> list[int]:
    """What torch says around a launch, innermost first."""
    said = []
    while row >= 0:
        if _ANNOTATION.match(trace.name[row]):
            said.append(row)
        row = int(trace.parent[row])
    return said


def _size(args: Args) -> int:
    width = element_bytes(args.dtype or "")
    largest = max(args.in_elements or 0, args.out_elements or 0)
    if width and 0 < largest < 1 << 56:
        return largest * width
    return tensor_bytes(args)


def _group(args: Args, groups: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        if args.group_ranks:
            raw: bytes = bytes(args.group_ranks)
            ranks = _ranks.decode(_text.decode(raw) if raw.startswith(b'"') else raw)
            if ranks and min(ranks) >= 0 and max(ranks) < 1 << 20:
                return tuple(sorted(set(ranks)))
    except (msgspec.DecodeError, RecursionError):
        pass  # a long list is cut short with dots: the name may still tell
    return groups.get(str(args.group_name)) if args.group_name is not None else None


def _communicator(trace: KinetoTrace, row: int, told: list[Args]) -> str:
    name = next((str(args.group_name) for args in told if args.group_name is not None), None)
    if name is not None:
        return f"group {name}"
    place = trace.threads[int(trace.thread[row])]
    return f"stream {place.tid}" if place.is_device else "gloo"


def _streams(
    rank: int,
    trace: KinetoTrace,
    draft: Draft,
    main: int,
    communicates: set[int],
    workshop: Workshop,
) -> None:
    talks = np.zeros(len(trace), dtype=bool)
    talks[list(communicates)] = True
    for at, thread in enumerate(trace.threads):
        rows = trace.thread == at
        if not thread.is_device:
            kind = StreamKind.MAIN_THREAD if at == main else StreamKind.THREAD
            name = "main thread" if at == main else thread.name
        else:
            # Copies into buffers run there too; a stream is what it mostly does.
            kind = StreamKind.COMMUNICATION if talks[rows].mean() > 0.5 else StreamKind.DEVICE
            name = f"device {thread.pid} stream {thread.tid}"
        draft.stream[rows] = workshop.stream(rank, kind, name)
