"""Reads coarse operations of pipeline-parallel jobs: a Parquet table, one row per operation.

Times are seconds since the start of the step. Steps were sampled and the time between them is
unknown, so each step starts where the previous one ends. A send of one stage and a receive of its
neighbour with the same ``seq_id`` are one transfer. Sizes are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
_STAGE_TRANSFERS = {
    "forward-send": (OpKind.SEND, 1),
    "forward-recv": (OpKind.RECV, -1),
    "backward-send": (OpKind.SEND, -1),
    "backward-recv": (OpKind.RECV, 1),
}
"""Kind of a transfer between stages, and the offset of the peer's stage."""
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
    place_of = {row["rank"]: (row["dp_rank"], row["stage"]) for row in rows}
    rank_at = {place: rank for rank, place in place_of.items()}
    if len(rank_at) != len(place_of) or not all(0 <= rank < _MAX_RANKS for rank in place_of):
        raise FileFormatError(f"{path} has contradictory ranks and stages")
    steps, step_start_ns = _steps(rows)
    builder = TraceBuilder()
    converter = _RowConverter(builder=builder, rank_at=rank_at, ledger=ledger)
    for rank in sorted(place_of):
        own = [row for row in rows if row["rank"] == rank]
        start_ns = np.array([step_start_ns[row["step"]] for row in own], dtype=np.int64)
        events = MutableEvents.blank(
            start_ns + _ns([row["start_ts"] for row in own]), _ns([row["duration"] for row in own])
        )
        for i, row in enumerate(own):
            converter.fill(events, i, row, place_of[rank])
        builder.add(rank, events)
    return Trace(
        events=builder.events(),
        streams=builder.streams(),
        steps=steps,
        strings=builder.strings.table(),
        ranks=[RankFacts(rank=rank, host="") for rank in sorted(place_of)],
        world_size=max(place_of) + 1,
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

    integers = ["dp_rank", "stage", "rank", "step", "seq_id"]
    try:
        frame = frame.with_columns(
            polars.col(integers).cast(polars.Int32),
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
    """Returns the table of steps, and the start of each step by its number."""
    dur_ns: dict[tuple[int, int], int] = {}
    for row in rows:
        key = row["rank"], row["step"]
        dur_ns[key] = max(dur_ns.get(key, 0), round((row["start_ts"] + row["duration"]) * 1e9))
    start_ns: dict[int, int] = {}
    now_ns = 0
    for step in sorted({step for _, step in dur_ns}):
        start_ns[step] = now_ns
        now_ns += max(dur for (_, number), dur in dur_ns.items() if number == step)
    keys = sorted(dur_ns)
    starts = np.array([start_ns[step] for _, step in keys], dtype=np.int64)
    unknown = np.full(len(keys), -1, dtype=np.int64)
    table = Steps(
        rank=np.array([rank for rank, _ in keys], dtype=np.int32),
        step=np.array([max(0, step) for _, step in keys], dtype=np.int32),
        start_ns=starts,
        end_ns=starts + np.array([dur_ns[key] for key in keys], dtype=np.int64),
        state=np.full(len(keys), StepState.TIMED, dtype=np.uint8),
        cpu_ns=unknown,
        delay_ns=unknown,
        helper_cpu_ns=unknown,
    )
    return table, start_ns


@dataclass(kw_only=True)
class _RowConverter:
    """Converts rows of the table to events."""

    builder: TraceBuilder
    rank_at: dict[_Place, int]
    ledger: Ledger
    _sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Sequence number of each communication, by group, step and ``seq_id``."""

    def fill(self, events: MutableEvents, i: int, row: dict[str, Any], place: _Place) -> None:
        """Fills event ``i`` from a row of the rank at ``place``."""
        optype, builder = row["optype"], self.builder
        kind, phase = _KIND_AND_PHASE.get(optype, (OpKind.OTHER, Phase.NONE))
        group, label = self._group(optype, place, kind)
        stream = (StreamKind.DEVICE, "compute")
        if optype in _STAGE_TRANSFERS:
            kind = _STAGE_TRANSFERS[optype][0]
            stream = (StreamKind.COMMUNICATION, optype)
        elif kind.is_communication:
            stream = (StreamKind.COMMUNICATION, "gradients")
        elif kind == OpKind.OTHER:
            self.ledger.note(
                "unknown-operation",
                "an operation has an unknown kind",
                severity=Severity.INFO,
                example=optype[:100],
            )
        events.kind[i], events.phase[i] = kind, phase
        events.step[i] = max(0, row["step"])
        events.name[i] = builder.strings.number(optype[:200])
        events.layer[i] = builder.strings.number(f"stage {place[1]}")
        events.stream[i] = builder.stream(row["rank"], *stream)
        if len(group) > 1:
            events.group[i] = builder.group(group, label)
            key = (int(events.group[i]), row["step"], row["seq_id"])
            events.sequence[i] = self._sequences.setdefault(key, len(self._sequences))

    def _group(self, optype: str, place: _Place, kind: OpKind) -> tuple[tuple[int, ...], str]:
        """Returns the ranks of a communication, and a label that separates communications of the
        same ranks."""
        rank_at, (dp_rank, stage) = self.rank_at, place
        if optype in _STAGE_TRANSFERS:
            direction = optype.partition("-")[0]
            peer = rank_at.get((dp_rank, stage + _STAGE_TRANSFERS[optype][1]))
            return (() if peer is None else tuple(sorted((rank_at[place], peer)))), direction
        if optype == "embedding-grads-all-reduce":
            # The first and the last stage share the embedding.
            stages = sorted(s for d, s in rank_at if d == dp_rank)
            ends = {rank_at[dp_rank, stages[0]], rank_at[dp_rank, stages[-1]]}
            return tuple(sorted(ends)), optype
        if kind.is_communication:
            # Parameters and gradients of a stage are sharded over its data-parallel ranks.
            return tuple(sorted(rank for (_, s), rank in rank_at.items() if s == stage)), optype
        return (), ""
