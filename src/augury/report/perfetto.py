"""Writes a timeline as JSON for ui.perfetto.dev and chrome://tracing, as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from augury.core.files import new_file
from augury.core.memory_curve import MemoryCurve, memory_curve
from augury.core.timeline import Timeline
from augury.report.formats import DEFAULT_MAX_EVENTS, MAX_FLOWS
from augury.report.trace_events import (
    flow_events,
    memory_events,
    path_events,
    slice_events,
    track_events,
)
from augury.report.tracks import TrackLayout, lay_out

_CHUNK = 4096


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a written timeline. A timeline that is too long is cut at one time, ``cut_at_ns``,
    so that it is complete up to there; null if it was not cut."""

    num_events: int
    num_ops_left_out: int
    num_flows_left_out: int
    cut_at_ns: int | None


def write_perfetto(
    timeline: Timeline,
    path: Path,
    *,
    force: bool = False,
    max_events: int = DEFAULT_MAX_EVENTS,
    title: str = "",
) -> Written:
    """Writes at most ``max_events`` events, and the names of the tracks."""
    layout = lay_out(timeline)
    progress_ns = timeline.progress_start_ns
    memory = memory_curve(timeline)
    cut_at_ns, room = _cut(timeline, progress_ns, memory, max_events)
    kept = _kept(timeline, cut_at_ns)
    flows, num_flows_left_out = _flows(timeline, layout, kept, min(MAX_FLOWS, room // 2))
    with _file(path, force=force) as file:
        # Viewers look for the unit only near the beginning.
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        num_events = _write(
            file,
            track_events(layout),
            path_events(timeline, layout, cut_at_ns),
            slice_events(timeline, layout, progress_ns, kept),
            memory_events(memory, cut_at_ns),
            flow_events(timeline, layout, flows),
        )
        written = Written(
            num_events=num_events,
            num_ops_left_out=timeline.graph.num_ops - len(kept),
            num_flows_left_out=num_flows_left_out,
            cut_at_ns=cut_at_ns,
        )
        about = {"producer": "augury", "title": title, **msgspec.to_builtins(written)}
        file.write(b'\n],"otherData":' + json.dumps(about).encode() + b"}\n")
    return written


def _write(file: IO[bytes], *streams: Iterable[str]) -> int:
    num_events = 0
    chunk: list[str] = []

    def flush() -> None:
        file.write(",\n".join(chunk).encode())
        chunk.clear()

    for stream in streams:
        for event in stream:
            if len(chunk) == _CHUNK:
                flush()
                file.write(b",\n")
            chunk.append(event)
            num_events += 1
    flush()
    return num_events


@contextmanager
def _file(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    with new_file(path, force=force) as file:
        if path.suffix != ".gz":
            yield file
            return
        from isal import igzip

        gzip_file: Any = igzip.IGzipFile
        with gzip_file(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed


def _cut(
    timeline: Timeline, progress_ns: NDArray[np.int64], memory: MemoryCurve, max_events: int
) -> tuple[int | None, int]:
    """Returns the time from which on events are left out (None if all fit), and the number of
    further events that fit."""
    times = np.concatenate(
        [
            timeline.start_ns,
            timeline.start_ns[progress_ns > timeline.start_ns],
            timeline.critical_path.start_ns,
            memory.at_ns,
        ]
    )
    if len(times) <= max_events:
        return None, max_events - len(times)
    return int(np.partition(times, max_events)[max_events]), 0


def _kept(timeline: Timeline, cut_at_ns: int | None) -> NDArray[np.int64]:
    """Returns the operations to show, by start time."""
    order = np.argsort(timeline.start_ns, kind="stable")
    if cut_at_ns is None:
        return order
    return order[: int(np.searchsorted(timeline.start_ns[order], cut_at_ns, side="left"))]


def _flows(
    timeline: Timeline, layout: TrackLayout, kept: NDArray[np.int64], limit: int
) -> tuple[NDArray[np.int64], int]:
    """Returns edges between tracks as rows (src, dst), those on the critical path first, then by
    time; and the number of edges beyond ``limit``."""
    graph = timeline.graph
    src, dst = graph.edges.sources(), graph.edges.dst
    shown = np.zeros(graph.num_ops, dtype=bool)
    shown[kept] = True
    across = (layout.op_tid[src] != layout.op_tid[dst]) & shown[src] & shown[dst]
    src, dst = src[across], dst[across]
    on_path = np.zeros(graph.num_ops, dtype=bool)
    on_path[timeline.critical_path.op] = True
    order = np.lexsort((timeline.end_ns[src], ~(on_path[src] & on_path[dst])))[:limit]
    return np.stack([src[order], dst[order]], axis=1).astype(np.int64), len(src) - len(order)
