"""Tables of measurements (CSV): one row per configuration, or panels of a published figure."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from augury.core.errors import InputError, UsageError
from augury.core.files import open_regular
from augury.oracle.strategies.registry import find_strategy

MAX_FILE_BYTES = 16 << 20
MAX_ROWS = 100_000
COLUMNS = "model, strategy, devices, global_batch, measured_step_s"
PANEL_COLUMNS = {"panel", "p", "emp_total_s"}
GROUP = 4
"""Devices per host of the published panels, where the batch of a hybrid is that of a group."""
SERIAL = "serial"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured configuration; ``projected_*`` are predictions of another oracle."""

    model: str
    strategy: str
    devices: int
    global_batch: int
    measured_step_s: float | None
    measured_compute_s: float | None = None
    measured_memory_bytes: float | None = None
    projected_step_s: float | None = None
    projected_compute_s: float | None = None


def read_table(path: Path) -> list[Row]:
    """Reads rows in the order of the file; rows with only a projection are kept."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", remedy="check the path"
        ) from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{path} is too large for a table", remedy="give fewer rows")
    try:
        reader = csv.DictReader(content.decode("utf-8-sig").splitlines(), strict=True)
        names = {name.strip() for name in reader.fieldnames or []}
        read = _panel_row if names >= PANEL_COLUMNS else _plain_row
        if read is _plain_row and not names >= set(COLUMNS.split(", ")):
            raise InputError(f"{path} has no table of measurements", remedy=f"columns: {COLUMNS}")
        rows = []
        for number, cells in enumerate(reader, start=2):
            if number > MAX_ROWS:
                raise InputError(f"{path} has more than {MAX_ROWS:,} rows", remedy="give fewer")
            try:
                rows.append(read({str(k).strip(): str(v or "").strip() for k, v in cells.items()}))
            except (ValueError, UsageError, InputError) as error:
                raise InputError(
                    f"{path}, row {number}: {error}", remedy=f"columns: {COLUMNS}"
                ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not CSV: {error}", remedy="write it as UTF-8 text") from error
    if not rows:
        raise InputError(f"{path} has no rows", remedy="give at least one measurement")
    return rows


def every_other(rows: list[Row], start: int) -> list[Row]:
    """Returns every other measured number of devices of each model and strategy."""
    measured = [row for row in rows if row.measured_step_s is not None]
    scales: dict[tuple[str, str], list[int]] = {}
    for row in measured:
        seen = scales.setdefault((row.model, row.strategy), [])
        if row.devices not in seen:
            seen.append(row.devices)
    return [
        row
        for row in measured
        if sorted(scales[row.model, row.strategy]).index(row.devices) % 2 == start
    ]


def _plain_row(cells: dict[str, str]) -> Row:
    strategy = cells["strategy"]
    step_s = _seconds(cells["measured_step_s"])
    if step_s is None:
        raise ValueError("measured_step_s is missing")
    return Row(
        model=cells["model"],
        strategy=SERIAL if strategy.lower() == SERIAL else find_strategy(strategy).name,
        devices=_count(cells["devices"]),
        global_batch=_count(cells["global_batch"]),
        measured_step_s=step_s,
        measured_compute_s=_seconds(cells.get("measured_compute_s", "")),
        measured_memory_bytes=_seconds(cells.get("measured_memory_bytes", "")),
    )


def _panel_row(cells: dict[str, str]) -> Row:
    """Parses ``ResNet50 ds b64``: model, strategy, and batch per device, in total or per group."""
    found = re.fullmatch(r"(\S+) (\S+) b(\d{1,9})", cells["panel"])
    if found is None:
        raise ValueError(f"{cells['panel'][:80]!r} is not a panel: model, strategy, b64")
    strategy = find_strategy(found[2]).name
    devices = _count(cells["p"])
    stated = _count(found[3])
    if strategy == "data" or strategy.startswith("zero"):
        batch = stated * devices
    elif strategy.startswith("data_"):
        batch = stated * max(1, devices // GROUP)
    else:
        batch = stated
    return Row(
        model=found[1],
        strategy=strategy,
        devices=devices,
        global_batch=batch,
        measured_step_s=_seconds(cells["emp_total_s"]),
        measured_compute_s=_seconds(cells.get("emp_comp_s", "")),
        projected_step_s=_seconds(cells.get("model_total_s", "")),
        projected_compute_s=_seconds(cells.get("model_comp_s", "")),
    )


def _count(text: str) -> int:
    """Parses a count; ``1K`` is 1024."""
    found = re.fullmatch(r"(\d{1,9})(K?)", text, re.ASCII)
    number = int(found[1]) * (1024 if found[2] else 1) if found else 0
    if number < 1:
        raise ValueError(f"{text[:80]!r} is not a number of devices or samples")
    return number


def _seconds(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text[:80]!r} is not a positive amount")
    return value
