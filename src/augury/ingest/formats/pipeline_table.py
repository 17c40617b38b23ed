"""Reads coarse operations of pipeline-parallel jobs: a Parquet table, one row per operation.

Times are seconds since the start of each step. Steps were sampled, so the time between them is
unknown: they are put one after the other. Sends of one stage pair with receives of the next by
their number. Sizes are unknown.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.errors import FileFormatError, InputError, LimitError
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import RankFacts, Steps, Trace
from augury.core.units import format_bytes
from augury.ingest.trace_builder import MutableEvents, TraceBuilder

if TYPE_CHECKING:
    import polars

SUFFIX = ".parquet"
MAX_ROWS = 20_000_000
MAX_FILE_BYTES = 1 << 30
_MAX_RANKS = 1 << 14
_COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
_NEIGHBOUR = {
    "forward-send": (OpKind.SEND, 1),
    "forward-recv": (OpKind.RECV, -1),
    "backward-send": (OpKind.SEND, -1),
    "backward-recv": (OpKind.RECV, 1),
}
_KIND_AND_PHASE = {
    "forward-compute": (OpKind.FORWARD, Phase.FORWARD),
    "backward-compute": (OpKind.BACKWARD, Phase.BACKWARD),
    "optimizer": (OpKind.UPDATE, Phase.UPDATE),
    "optimizer-clip-main-grad": (OpKind.UPDATE, Phase.UPDATE),
    "params-all-gather": (OpKind.ALL_GATHER, Phase.NONE),
    "grads-reduce-scatter": (OpKind.REDUCE_SCATTER, Phase.NONE),
    "embedding-grads-all-reduce": (OpKind.ALL_REDUCE, Phase.NONE),
}
_Place = tuple[int, int]
"""Data-parallel rank and pipeline stage."""


def read_pipeline_table(path: Path) -> Trace:
    rows, ledger = _read(path), Ledger()
    places = {r["rank"]: (r["dp_rank"], r["stage"]) for r in rows}
    at = {place: rank for rank, place in places.items()}
    if len(at) != len(places) or not all(0 <= rank < _MAX_RANKS for rank in places):
        raise FileFormatError(f"{path} has contradictory ranks and stages")
    steps, begins = _steps(rows)
    builder = TraceBuilder()
    numbers: dict[tuple[Any, ...], int] = {}
    for rank in sorted(places):
        own = [r for r in rows if r["rank"] == rank]
        begin = np.array([begins[r["step"]] for r in own], dtype=np.int64)
        events = MutableEvents.blank(
            begin + _ns([r["start_ts"] for r in own]), _ns([r["duration"] for r in own])
        )
        for i, row in enumerate(own):
            _fill(events, i, row, places[rank], at, builder, numbers, ledger)
        builder.add(rank, events)
    return Trace(
        events=builder.events(),
        streams=builder.streams(),
        steps=steps,
        strings=builder.strings.table(),
        ranks=[RankFacts(rank=rank, host="") for rank in sorted(places)],
        world_size=max(places) + 1,
        groups=builder.groups,
        ledger=ledger,
    )


def _read(path: Path) -> list[dict[str, Any]]:
    import polars  # noqa: PLC0415

    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise LimitError(
                f"{path} is larger than {format_bytes(MAX_FILE_BYTES)}", remedy="import fewer steps"
            )
        frame = polars.read_parquet(path, columns=list(_COLUMNS), n_rows=MAX_ROWS + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        raise FileFormatError(
            f"{path} is not a table of operations ({str(error)[:200]})",
            remedy="give a Parquet file with the columns " + ", ".join(_COLUMNS),
        ) from error
    if not 0 < frame.height <= MAX_ROWS:
        raise LimitError(f"{path} has {frame.height:,} rows", remedy=f"give 1 to {MAX_ROWS:,}")
    return _typed(frame, path).to_dicts()


def _typed(frame: polars.DataFrame, path: Path) -> polars.DataFrame:
    import polars  # noqa: PLC0415

    whole = ["dp_rank", "stage", "rank", "step", "seq_id"]
    try:
        frame = frame.with_columns(
            polars.col(whole).cast(polars.Int32),
            polars.col("start_ts", "duration").cast(polars.Float64),
            polars.col("optype").cast(polars.String),
        )
    except polars.exceptions.PolarsError as error:
        raise FileFormatError(f"{path} has columns of a wrong type ({str(error)[:200]})") from error
    times = frame.select("start_ts", "duration").to_numpy()
    if sum(frame.null_count().row(0)) or not ((times >= 0) & (times < 1e6)).all():
        raise FileFormatError(f"{path} has rows with missing values or impossible times")
    return frame


def _ns(seconds: list[float]) -> I8:
    result: I8 = np.rint(np.array(seconds, dtype=np.float64) * 1e9).astype(np.int64)
    return result


def _steps(rows: list[dict[str, Any]]) -> tuple[Steps, dict[int, int]]:
    ends: dict[tuple[int, int], int] = {}
    for row in rows:
        key = row["rank"], row["step"]
        ends[key] = max(ends.get(key, 0), round((row["start_ts"] + row["duration"]) * 1e9))
    begins: dict[int, int] = {}
    clock = 0
    for step in sorted({step for _, step in ends}):
        begins[step] = clock
        clock += max(end for (_, number), end in ends.items() if number == step)
    keys = sorted(ends)
    start = np.array([begins[step] for _, step in keys], dtype=np.int64)
    unknown = np.full(len(keys), -1, dtype=np.int64)
    table = Steps(
        rank=np.array([rank for rank, _ in keys], dtype=np.int32),
        step=np.array([max(0, step) for _, step in keys], dtype=np.int32),
        start_ns=start,
        end_ns=start + np.array([ends[key] for key in keys], dtype=np.int64),
        state=np.full(len(keys), StepState.TIMED, dtype=np.uint8),
        cpu_ns=unknown,
        delay_ns=unknown,
        helper_cpu_ns=unknown,
    )
    return table, begins


def _fill(
    events: MutableEvents,
    i: int,
    row: dict[str, Any],
    place: _Place,
    at: dict[_Place, int],
    builder: TraceBuilder,
    numbers: dict[tuple[Any, ...], int],
    ledger: Ledger,
) -> None:
    kind, phase = _KIND_AND_PHASE.get(row["optype"], (OpKind.OTHER, Phase.NONE))
    group, label = _group(row["optype"], place, at, kind)
    stream = (StreamKind.DEVICE, "compute")
    if row["optype"] in _NEIGHBOUR:
        kind = _NEIGHBOUR[row["optype"]][0]
        stream = (StreamKind.COMMUNICATION, row["optype"])
    elif kind.is_communication:
        stream = (StreamKind.COMMUNICATION, "gradients")
    elif kind == OpKind.OTHER:
        ledger.note(
            "unknown-operation",
            "an operation has an unknown kind",
            severity=Severity.INFO,
            example=row["optype"][:100],
        )
    events.kind[i], events.phase[i] = kind, phase
    events.step[i] = max(0, row["step"])
    events.name[i] = builder.strings.number(row["optype"][:200])
    events.layer[i] = builder.strings.number(f"stage {place[1]}")
    events.stream[i] = builder.stream(row["rank"], *stream)
    if len(group) > 1:
        events.group[i] = builder.group(group, label)
        key = (int(events.group[i]), row["step"], row["seq_id"])
        events.sequence[i] = numbers.setdefault(key, len(numbers))


def _group(
    optype: str, place: _Place, at: dict[_Place, int], kind: OpKind
) -> tuple[tuple[int, ...], str]:
    """Ranks of the communication, and a label that separates communications of the same ranks."""
    data, stage = place
    if optype in _NEIGHBOUR:
        peer = at.get((data, stage + _NEIGHBOUR[optype][1]))
        own = at[place]
        return (() if peer is None else tuple(sorted((own, peer)))), optype.partition("-")[0]
    if optype == "embedding-grads-all-reduce":
        # The first and the last stage share the embedding.
        stages = sorted(s for d, s in at if d == data)
        return tuple(sorted({at[data, stages[0]], at[data, stages[-1]]})), optype
    if kind.is_communication:
        return tuple(sorted(rank for (_, s), rank in at.items() if s == stage)), optype
    return (), ""
