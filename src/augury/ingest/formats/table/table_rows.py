"""Reads a table of operations, Parquet or CSV, as typed columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.errors import FileFormatError, LimitError
from augury.core.ledger import Ledger
from augury.ingest.formats.gzip_reader import read_unpacked

if TYPE_CHECKING:
    import polars

REQUIRED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration")
OPTIONAL = ("seq_id", "mc", "gmc")
"""Sequence number within the operations of one kind, and model chunk: within its stage, and within
the whole model."""
MAX_ROWS = 20_000_000
MAX_FILE_BYTES = 1 << 30
MAX_RANKS = 1 << 14
_MAX_S = 4e9
"""Latest time: tables may have seconds since 1970."""
_MAX_STEP_S = 4000.0
"""Longest step: one operation of a Graph may not take much longer."""


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """Columns of a table, sorted by (step, rank, start, end). Steps follow each other without a
    gap: the time between recorded steps is unknown. A step lasts from the first start to the last
    end on any rank."""

    rank: I8
    dp_rank: I8
    stage: I8
    step: I8
    optype: I8
    """Index into ``optypes``."""
    optypes: list[str]
    start_ns: I8
    end_ns: I8
    seq_id: I8
    """-1 if unknown."""
    chunk: I8
    """Index of the model chunk within the whole model; -1 if unknown."""
    steps: I8
    """Number of each step, in order."""
    step_start_ns: I8
    step_end_ns: I8

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def num_stages(self) -> int:
        return int(self.stage.max()) + 1


def read_table(paths: Sequence[Path], ledger: Ledger) -> TableRows:
    """Reads the files that make up one table."""
    import polars  # noqa: PLC0415

    name = str(paths[0])
    frames = [_typed(_frame(path), str(path)) for path in paths]
    frame = polars.concat(frames)
    if not 0 < frame.height <= MAX_ROWS:
        raise LimitError(f"{name} has {frame.height:,} rows", remedy=f"give 1 to {MAX_ROWS:,}")
    return _rows(frame, name, ledger)


def _frame(path: Path) -> polars.DataFrame:
    import polars  # noqa: PLC0415

    data = _content(path)
    try:
        if data[:4] == b"PAR1":
            wanted = _wanted(list(polars.read_parquet_schema(BytesIO(data))), path)
            return polars.read_parquet(BytesIO(data), columns=wanted, n_rows=MAX_ROWS + 1)
        head = polars.read_csv(BytesIO(data), n_rows=1, infer_schema=False)
        wanted = _wanted(head.columns, path)
        return polars.read_csv(
            BytesIO(data), columns=wanted, n_rows=MAX_ROWS + 1, infer_schema=False
        )
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise FileFormatError(
            f"{path} is not a table of operations ({str(error)[:200]})",
            remedy="give a Parquet or CSV file with the columns " + ", ".join(REQUIRED),
        ) from error


def _content(path: Path) -> bytes:
    data = read_unpacked(path, max_bytes=MAX_FILE_BYTES)
    if not data:
        raise FileFormatError(f"{path} is empty", remedy="give a table of operations")
    return data


def _wanted(columns: list[str], name: Path) -> list[str]:
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        raise FileFormatError(
            f"{name} is not a table of operations: it has no column {', '.join(missing)}",
            remedy="give a Parquet or CSV file with the columns " + ", ".join(REQUIRED),
        )
    return [column for column in (*REQUIRED, *OPTIONAL) if column in columns]


def _typed(frame: polars.DataFrame, name: str) -> polars.DataFrame:
    import polars  # noqa: PLC0415

    optional = [column for column in OPTIONAL if column in frame.columns]
    whole = ["dp_rank", "stage", "rank", "step", *optional]
    try:
        frame = (
            frame.with_columns(
                # Through float, since columns with gaps are often written as 3.0.
                polars.col(whole).cast(polars.Float64).cast(polars.Int32),
                polars.col("start_ts", "duration").cast(polars.Float64),
                polars.col("optype").cast(polars.String),
            )
            .with_columns(
                *(polars.col(column).fill_null(-1) for column in optional),
                *(
                    polars.lit(-1, polars.Int32).alias(column)
                    for column in OPTIONAL
                    if column not in optional
                ),
            )
            .select(*REQUIRED, *OPTIONAL)
        )
    except polars.exceptions.PolarsError as error:
        raise FileFormatError(
            f"{name} has columns of a wrong type ({str(error)[:200]})",
            remedy="give whole numbers, seconds and names of operations",
        ) from error
    times = frame.select("start_ts", "duration").to_numpy()
    if sum(frame.null_count().row(0)) or not (np.abs(times) < _MAX_S).all():
        raise FileFormatError(
            f"{name} has rows with missing values or impossible times",
            remedy="leave these rows out",
        )
    return frame


def _rows(frame: polars.DataFrame, name: str, ledger: Ledger) -> TableRows:
    def column(key: str) -> I8:
        return np.asarray(frame[key].to_numpy(), dtype=np.int64)

    rank, stage, dp_rank = column("rank"), column("stage"), column("dp_rank")
    if min(rank.min(), stage.min(), dp_rank.min()) < 0 or rank.max() >= MAX_RANKS:
        raise FileFormatError(
            f"{name} has negative ranks or stages, or more than {MAX_RANKS:,} ranks",
            remedy="number ranks and stages from 0",
        )
    start_s = frame["start_ts"].to_numpy()
    dur_s = frame["duration"].to_numpy()
    ledger.note(
        "negative-duration",
        "an operation ends before it starts; its duration is set to 0",
        count=int((dur_s < 0).sum()),
        example=name,
    )
    end_s = start_s + np.maximum(dur_s, 0)
    numbers, step = np.unique(column("step"), return_inverse=True)
    first_s = np.full(len(numbers), np.inf)
    np.minimum.at(first_s, step, start_s)
    last_s = np.full(len(numbers), -np.inf)
    np.maximum.at(last_s, step, end_s)
    if (last_s - first_s).max() > _MAX_STEP_S:
        raise FileFormatError(
            f"{name} has a step of {(last_s - first_s).max():.0f} s",
            remedy="times are seconds: on one clock, or since the start of the step",
        )
    dur_ns = _ns(last_s - first_s)
    origin_ns = np.concatenate([[0], np.cumsum(dur_ns)[:-1]])
    texts = frame["optype"].to_list()
    optypes = sorted(set(texts))
    number_of = {text: number for number, text in enumerate(optypes)}
    optype = np.array([number_of[text] for text in texts], dtype=np.int64)
    start_ns = origin_ns[step] + _ns(start_s - first_s[step])
    end_ns = origin_ns[step] + _ns(end_s - first_s[step])
    order = np.lexsort((optype, end_ns, start_ns, rank, step))
    return TableRows(
        rank=rank[order],
        dp_rank=dp_rank[order],
        stage=stage[order],
        step=np.asarray(step, dtype=np.int64)[order],
        optype=optype[order],
        optypes=[text[:200] for text in optypes],
        start_ns=start_ns[order],
        end_ns=end_ns[order],
        seq_id=column("seq_id")[order],
        chunk=_chunk(column("gmc"), column("mc"), stage)[order],
        # Steps of a Trace are not negative.
        steps=numbers - min(0, int(numbers.min())),
        step_start_ns=origin_ns,
        step_end_ns=origin_ns + dur_ns,
    )


def _chunk(in_model: I8, in_stage: I8, stage: I8) -> I8:
    """Returns the chunk within the model. Chunks go round the stages: the second chunk of the
    first stage follows the first chunk of the last stage."""
    num_stages = int(stage.max()) + 1
    known = np.where(in_stage >= 0, in_stage * num_stages + stage, -1)
    return np.where(in_model >= 0, in_model, known)


def _ns(seconds: NDArray[np.float64]) -> I8:
    result: I8 = np.rint(seconds * 1e9).astype(np.int64)
    return result
