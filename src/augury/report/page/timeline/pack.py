"""Packs a timeline for a page: a JSON header and columns, compressed, as base64.

Names are inside of the compressed part, so no name can end the element that holds it. The script
of the page (``timeline-data.js``) unpacks it.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.core.run_page import RunPage
from augury.core.string_table import StringTable
from augury.core.timeline import Reason
from augury.core.units import format_count
from augury.report.page.timeline.measured_lanes import (
    ShownSteps,
    measured_lanes,
    recorded_ranks,
    shown_steps,
)
from augury.report.page.timeline.rank_rows import RankRows, rank_rows
from augury.report.page.timeline.replayed_lanes import (
    LaneSet,
    critical_path_lane,
    replayed_lanes,
)
from augury.report.page.timeline.slices import Colour, Lane, Slices, merge_short
from augury.report.safe_text import safe

MAX_PACKED_BYTES = 2_200_000
"""Limit on the packed timeline, which leaves room for the rest of a page of 3 MB."""
BUDGETS = (120_000, 60_000, 30_000, 15_000, 8_000, 3_000, 1_000)
"""Numbers of slices of each source, tried until the packed timeline is small enough."""
MAX_FLOWS = 6_000
MAX_NAME_CHARS = 120
MAX_ALL_NAMES_CHARS = 1_000_000
MAX_STEP_MARKS = 20_000


@dataclass(frozen=True, kw_only=True)
class PackedTimeline:
    text: str
    """Base64."""
    num_slices: int
    num_ops: int
    """Operations and events that the slices stand for."""
    num_ranks_in_detail: int
    num_classes: int
    notes: list[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Parts:
    rows: RankRows
    steps: ShownSteps | None
    sets: list[tuple[LaneSet, StringTable]]
    end_ns: int


def pack_timeline(page: RunPage) -> PackedTimeline:
    parts = _parts(page)
    for budget in BUDGETS:
        packed = _pack(page, parts, budget)
        if len(packed.text) <= MAX_PACKED_BYTES:
            break
    return packed


def _parts(page: RunPage) -> _Parts:
    timeline, trace = page.timeline, page.trace
    steps = None
    end_ns = max(1, timeline.makespan_ns)
    if trace is not None:
        ranks = recorded_ranks(trace, timeline.graph.num_ranks)
        steps = shown_steps(trace, np.unique(timeline.graph.ops.step), ranks)
        end_ns = max(end_ns, int(steps.end_ns.max(initial=0)))
    rows = rank_rows(timeline, end_ns, is_measured=trace is not None)
    strings = timeline.graph.strings
    sets = [(critical_path_lane(timeline), strings)]
    if trace is not None and steps is not None:
        sets.append((measured_lanes(trace, steps, rows.detailed), trace.strings))
    sets.append((replayed_lanes(timeline, rows.detailed), strings))
    end_ns = max([end_ns, *(_end_ns(lane_set.slices) for lane_set, _ in sets)])
    return _Parts(rows=rows, steps=steps, sets=sets, end_ns=end_ns)


def _end_ns(slices: Slices) -> int:
    return int((slices.start_ns + slices.dur_ns).max(initial=0))


def _pack(page: RunPage, parts: _Parts, budget: int) -> PackedTimeline:
    lanes: list[Lane] = []
    chosen: list[Slices] = []
    flows: list[NDArray[np.int64]] = []
    names = _NameNumbers()
    num_slices = num_ops = 0
    for lane_set, strings in parts.sets:
        num_ops += len(lane_set.slices)
        kept, new_row = merge_short(lane_set.slices, budget)
        flows.append(_new_flows(lane_set.flows, new_row, num_slices))
        fields = dict(kept.columns()) | {
            "lane": kept.lane + len(lanes),
            "name": names.numbers(kept.name, strings),
            "layer": names.numbers(kept.layer, strings),
        }
        chosen.append(Slices(**fields))
        lanes += lane_set.lanes
        num_slices += len(kept)
    columns = {
        name: np.concatenate([getattr(one, name) for one in chosen]) for name, _ in Slices.schema()
    }
    start_ns = min(0, int(columns["start_ns"].min(initial=0)))
    unit_ns = max(1, -(-(parts.end_ns - start_ns) // (2**32 - 2)))
    arrows = np.concatenate(flows)
    header = {
        "unitNs": unit_ns,
        "originNs": start_ns,
        "windowEndNs": parts.end_ns,
        "lanes": [[lane.source, lane.rank, safe(lane.name, max_chars=60)] for lane in lanes],
        "names": names.shortened(),
        "ranks": _rank_header(page, parts.rows),
        "classes": parts.rows.classes.tolist(),
        "detailed": parts.rows.detailed.tolist(),
        "steps": _step_marks(page, parts),
        "colours": [colour.name.lower() for colour in Colour],
        "reasons": [reason.label for reason in Reason],
        "stripBins": parts.rows.strips.shape[2] if parts.rows.strips.ndim == 3 else 0,
    }
    body = _body(header, _u4_columns(columns, arrows, start_ns, unit_ns), parts.rows.strips)
    return PackedTimeline(
        text=base64.b64encode(zlib.compress(body, 9)).decode("ascii"),
        num_slices=num_slices,
        num_ops=num_ops,
        num_ranks_in_detail=int(np.isin(parts.rows.class_of, parts.rows.detailed).sum()),
        num_classes=len(parts.rows.classes),
        notes=_notes(page, parts, num_slices=num_slices, num_ops=num_ops),
    )


def _u4_columns(
    columns: dict[str, NDArray[Any]], arrows: NDArray[np.int64], start_ns: int, unit_ns: int
) -> dict[str, NDArray[Any]]:
    start = (columns["start_ns"] - start_ns) // unit_ns
    return {
        "lane": np.diff(columns["lane"], prepend=0),
        "start": np.diff(start, prepend=0),
        "dur": -(-columns["dur_ns"] // unit_ns),
        "wait": columns["wait_ns"] // unit_ns,
        "name": columns["name"] + 1,
        "layer": columns["layer"] + 1,
        "step": columns["step"] + 1,
        "sizeLow": columns["size_bytes"] & 0xFFFFFFFF,
        "sizeHigh": columns["size_bytes"] >> 32,
        "count": columns["count"],
        "look": columns["colour"].astype(np.int64)
        | columns["is_critical"].astype(np.int64) << 8
        | columns["reason"].astype(np.int64) << 16,
        "flowFrom": arrows[:, 0],
        "flowTo": arrows[:, 1],
    }


def _body(
    header: dict[str, Any], columns: dict[str, NDArray[Any]], strips: NDArray[np.uint8]
) -> bytes:
    """Bytes of one significance stand together, which compresses better."""
    header = header | {"columns": [[name, len(values)] for name, values in columns.items()]}
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    planes = [
        (values.astype(np.int64) & 0xFFFFFFFF).astype("<u4").view(np.uint8).reshape(-1, 4).T
        for values in columns.values()
    ]
    return b"".join(
        [struct.pack("<I", len(text)), text, *(p.tobytes() for p in planes), strips.tobytes()]
    )


def _new_flows(
    flows: NDArray[np.int64], new_row: NDArray[np.int64], offset: int
) -> NDArray[np.int64]:
    """Flows between merged slices, each once; the first ``MAX_FLOWS`` of them."""
    if not len(flows):
        return flows
    moved = new_row[flows] + offset
    moved = moved[moved[:, 0] != moved[:, 1]]
    _, first = np.unique(moved, axis=0, return_index=True)
    return np.asarray(moved[np.sort(first)[:MAX_FLOWS]])


class _NameNumbers:
    """Numbers the distinct names of several tables of strings."""

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}

    def numbers(self, column: NDArray[np.int32], strings: StringTable) -> NDArray[np.int64]:
        values, place, _ = np.unique(column, return_inverse=True, return_counts=True)
        numbers = [self._number(strings, value) for value in values.tolist()]
        return np.asarray(np.array(numbers, dtype=np.int64)[place]) if numbers else place

    def _number(self, strings: StringTable, value: int) -> int:
        text = safe(strings[value], max_chars=MAX_NAME_CHARS) if value >= 0 else ""
        return self._number_of.setdefault(text, len(self._number_of)) if text else -1

    def shortened(self) -> list[str]:
        """All names, shortened further if they are too many."""
        texts = list(self._number_of)
        if sum(map(len, texts)) <= MAX_ALL_NAMES_CHARS:
            return texts
        room = max(12, MAX_ALL_NAMES_CHARS // max(1, len(texts)))
        return [safe(text, max_chars=room) for text in texts]


def _rank_header(page: RunPage, rows: RankRows) -> list[list[Any]]:
    """For each rank its role, its host and the place of its class."""
    place = {int(one): index for index, one in enumerate(rows.classes)}
    return [
        [result.role, safe(result.host, max_chars=60), place[int(rows.class_of[result.rank])]]
        for result in page.replay.ranks[: len(rows.class_of)]
    ]


def _step_marks(page: RunPage, parts: _Parts) -> list[list[int]]:
    """Source, rank, step, start and end of the steps of ranks in detail."""
    marks: list[list[int]] = []
    tables: Sequence[tuple[int, Any]] = [(2, page.timeline.rank_steps)]
    if parts.steps is not None:
        tables = [(1, parts.steps), *tables]
    for source, table in tables:
        rows = np.flatnonzero(np.isin(table.rank, parts.rows.detailed))[: MAX_STEP_MARKS // 2]
        marks += [
            [source, *values]
            for values in zip(
                table.rank[rows].tolist(),
                table.step[rows].tolist(),
                table.start_ns[rows].tolist(),
                table.end_ns[rows].tolist(),
                strict=True,
            )
        ]
    return marks


def _notes(page: RunPage, parts: _Parts, *, num_slices: int, num_ops: int) -> list[str]:
    """What the timeline leaves out."""
    notes = []
    num_ranks, rows = len(page.timeline.graph.ranks), parts.rows
    if num_slices < num_ops:
        notes.append(
            f"{num_ops:,} operations and events are shown as {num_slices:,} slices:"
            " neighbours that are too short to see are merged"
        )
    if len(rows.classes) < len(rows.class_of):
        classes = format_count(len(rows.classes), "class", "classes")
        notes.append(f"{num_ranks:,} ranks form {classes} of identical ranks")
    if len(rows.detailed) < len(rows.classes):
        notes.append(
            f"{len(rows.detailed)} ranks have all their lanes: those on the critical path, the"
            " slowest, the fastest, and some of the others; the rest has a summary"
        )
    if len(rows.class_of) < num_ranks:
        notes.append(f"only the first {len(rows.class_of):,} ranks have a row")
    return notes
