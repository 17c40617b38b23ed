"""Events of a Chrome trace, one line of JSON each.

The lines are formatted directly instead of encoded from objects, because there may be a million of
them, and so that times keep every nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind
from augury.core.memory_curve import MemoryCurve
from augury.core.timeline import Reason, Timeline
from augury.report.safe_text import safe
from augury.report.tracks import TrackLayout

_CRITICAL_COLOR = "terrible"
_WAITING_COLOR = "grey"
_CHUNK = 4096


def track_events(layout: TrackLayout) -> Iterator[str]:
    """Yields names and order of all processes and tracks."""
    for process in layout.processes:
        place = f'"pid":{process.pid}'
        yield _meta(place, "process_name", f'"name":{_text(process.name)}')
        yield _meta(place, "process_sort_index", f'"sort_index":{process.order}')
    for track in (layout.path, *layout.tracks):
        place = f'"pid":{track.pid},"tid":{track.tid}'
        yield _meta(place, "thread_name", f'"name":{_text(track.name)}')
        yield _meta(place, "thread_sort_index", f'"sort_index":{track.tid}')


def path_events(timeline: Timeline, layout: TrackLayout, cut_at_ns: int | None) -> Iterator[str]:
    ops, path, names = timeline.graph.ops, timeline.critical_path, _Names(timeline)
    kept = path.start_ns < (np.iinfo(np.int64).max if cut_at_ns is None else cut_at_ns)
    columns = (
        path.op,
        path.start_ns,
        path.dur_ns,
        path.reason,
        ops.rank[path.op],
        ops.kind[path.op],
        ops.name[path.op],
    )
    for op, start, dur, reason, rank, kind, name in zip(
        *(values[kept].tolist() for values in columns), strict=True
    ):
        yield (
            f"{_slice(layout.path.pid, layout.path.tid, start, start + dur)},"
            f'"name":{names[name]},"cat":"critical path","cname":"{_CRITICAL_COLOR}",'
            f'"args":{{"op":{op},"rank":{rank},"kind":"{OpKind(kind).label}",'
            f'"reason":"{Reason(reason).label}"}}}}'
        )


def slice_events(
    timeline: Timeline, layout: TrackLayout, progress_ns: NDArray[np.int64], kept: NDArray[np.int64]
) -> Iterator[str]:
    """Yields all operations; one that holds its place while it waits for its peers gets a slice for
    that too."""
    ops, path, names = timeline.graph.ops, timeline.critical_path, _Names(timeline)
    kinds = {int(kind): kind.label for kind in OpKind}
    # In reverse, so that the first of two rows of an operation, its work, remains.
    backwards = zip(path.op[::-1].tolist(), path.reason[::-1].tolist(), strict=True)
    reasons = {op: Reason(reason).label for op, reason in backwards}
    for at in range(0, len(kept), _CHUNK):
        part = kept[at : at + _CHUNK]
        columns = (
            part,
            layout.op_pid[part],
            layout.op_tid[part],
            timeline.start_ns[part],
            progress_ns[part],
            timeline.end_ns[part],
            ops.kind[part],
            ops.name[part],
            ops.layer[part],
            ops.step[part],
            ops.size_bytes[part],
        )
        for op, pid, tid, start, progress, end, kind, name, layer, step, size in zip(
            *(values.tolist() for values in columns), strict=True
        ):
            if progress > start:
                yield (
                    f'{_slice(pid, tid, start, progress)},"name":"waiting for other ranks",'
                    f'"cat":"waiting","cname":"{_WAITING_COLOR}","args":{{"before_op":{op}}}}}'
                )
            args = f'"op":{op},"kind":"{kinds[kind]}"'
            if layer >= 0:
                args += f',"layer":{names[layer]}'
            if step >= 0:
                args += f',"step":{step}'
            if size:
                args += f',"bytes":{size}'
            color = ""
            if op in reasons:
                args += f',"critical_path":"{reasons[op]}"'
                color = f'"cname":"{_CRITICAL_COLOR}",'
            yield (
                f'{_slice(pid, tid, progress, end)},"name":{names[name]},'
                f'"cat":"{kinds[kind]}",{color}"args":{{{args}}}}}'
            )


def memory_events(memory: MemoryCurve, cut_at_ns: int | None) -> Iterator[str]:
    columns = (memory.rank.tolist(), memory.at_ns.tolist(), memory.held_bytes.tolist())
    for rank, at, held in zip(*columns, strict=True):
        if cut_at_ns is None or at < cut_at_ns:
            yield (
                f'{{"ph":"C","pid":{rank + 1},"ts":{_us(at)},"name":"memory",'
                f'"args":{{"bytes":{held}}}}}'
            )


def flow_events(timeline: Timeline, layout: TrackLayout, flows: NDArray[np.int64]) -> Iterator[str]:
    """Yields arrows. An arrow starts 1 ns before the end of its slice: at the end, viewers would
    attach it to the next slice."""
    start, end = timeline.start_ns, timeline.end_ns
    for number, (src, dst) in enumerate(flows.tolist(), start=1):
        leaves = max(int(start[src]), int(end[src]) - 1)
        same = f'"id":{number},"name":"needs","cat":"edge"'
        yield (
            f'{{"ph":"s","pid":{layout.op_pid[src]},"tid":{layout.op_tid[src]},'
            f'"ts":{_us(leaves)},{same}}}'
        )
        yield (
            f'{{"ph":"f","bp":"e","pid":{layout.op_pid[dst]},"tid":{layout.op_tid[dst]},'
            f'"ts":{_us(int(start[dst]))},{same}}}'
        )


class _Names:
    """Strings as JSON, each encoded once."""

    def __init__(self, timeline: Timeline) -> None:
        self._strings = timeline.graph.strings
        self._known: dict[int, str] = {}

    def __getitem__(self, number: int) -> str:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = _text(self._strings[number])
        return known


def _text(text: str) -> str:
    return json.dumps(safe(text))


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _meta(place: str, name: str, args: str) -> str:
    return f'{{"ph":"M",{place},"name":"{name}","args":{{{args}}}}}'


def _slice(pid: int, tid: int, start: int, end: int) -> str:
    """Returns the fields that all slices have, without the closing brace."""
    return f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(start)},"dur":{_us(end - start)}'
