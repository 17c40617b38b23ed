"""Fit of the latency and bandwidth of a cluster's levels to timed collectives.

Timings come from the output of nccl-tests, a CSV file, or ``augury run --calibrate``.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from augury.core.cluster.cluster import Cluster
from augury.core.errors import InputError
from augury.core.files import open_regular
from augury.core.trace.trace import Trace

MAX_FILE_BYTES = 16 << 20
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Number of times around the ring, by collective."""
REMEDY = (
    "give the output of nccl-tests, or a CSV of collective, devices, size_bytes, time_s with"
    f" collectives {', '.join(ROUNDS)}"
)
_NCCL_ROW = re.compile(
    r"\s*(\d{1,15})\s+\d+\s+\w+\s+(\w+)\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)"
)
_NCCL_RANK = re.compile(r"#\s+Rank\s+\d+\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    collective: str
    num_devices: int
    size_bytes: int
    """Size of the whole tensor."""
    time_s: float


def with_timings(cluster: Cluster, timings: Sequence[Timing]) -> Cluster:
    """Returns the cluster with fitted figures for each level that collectives were timed on."""
    by_level: dict[int, list[Timing]] = {}
    for timing in timings:
        if timing.collective in ROUNDS and timing.num_devices > 1 and timing.time_s > 0:
            level = int(cluster.level_of(np.array([timing.num_devices], float))[0])
            by_level.setdefault(level, []).append(timing)
    if not by_level:
        raise InputError("no collective of several devices was timed", remedy=REMEDY)
    levels = list(cluster.levels)
    for level, found in by_level.items():
        latency_s, seconds_per_byte = _fitted(found)
        levels[level] = replace(
            levels[level],
            latency_ns=round(latency_s * 1e9),
            bandwidth_bytes_per_s=max(1, round(1 / seconds_per_byte)),
            is_measured=True,
        )
    return replace(cluster, levels=tuple(levels))


def read_timings(path: Path) -> list[Timing]:
    try:
        with open_regular(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", remedy=REMEDY) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text", remedy=REMEDY) from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{path} is too large", remedy=REMEDY)
    lines = text.splitlines()
    try:
        is_table = bool(lines) and "collective" in lines[0]
        found = list(_of_table(lines) if is_table else _of_nccl(lines))
    except (ValueError, KeyError, csv.Error) as error:
        raise InputError(
            f"{path} has a row that is not a timing: {error}", remedy=REMEDY
        ) from error
    if not found:
        raise InputError(f"{path} has no timed collectives", remedy=REMEDY)
    return found


def timings_of(trace: Trace) -> list[Timing]:
    """Timings of a calibrated run: collectives one at a time, without concurrent compute."""
    return [
        Timing(
            collective=row.collective,
            num_devices=len(trace.groups[row.group]) if row.group < len(trace.groups) else 0,
            size_bytes=row.size_bytes,
            time_s=float(np.median(row.durations_ns)) * 1e-9,
        )
        for row in trace.calibration
        if row.concurrent == 1 and not row.beside_compute and row.durations_ns
    ]


def _fitted(timings: Sequence[Timing]) -> tuple[float, float]:
    """Fits latency and seconds per byte of a ring by least squares of relative errors."""
    rows = []
    for one in timings:
        steps = ROUNDS[one.collective] * (one.num_devices - 1)
        chunk = one.size_bytes / one.num_devices
        rows.append((steps / one.time_s, steps * chunk / one.time_s))
    matrix = np.array(rows)
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(matrix / scale, np.ones(len(rows)))
    latency_s, seconds_per_byte = (found / scale).tolist()
    # Timings of small messages alone do not determine the bandwidth.
    return latency_s, max(seconds_per_byte, 1e-15)


def _of_table(lines: list[str]) -> Iterator[Timing]:
    for cells in csv.DictReader(lines, strict=True):
        collective = str(cells["collective"]).strip().lower().replace("-", "_")
        if collective not in ROUNDS:
            raise ValueError(f"{collective[:80]!r} is not a known collective")
        yield _timing(
            collective,
            int(str(cells["devices"])),
            int(str(cells["size_bytes"])),
            float(str(cells["time_s"])),
        )


def _of_nccl(lines: list[str]) -> Iterator[Timing]:
    """Reads nccl-tests output; the ratio of its bandwidths identifies the collective."""
    num = sum(1 for line in lines if _NCCL_RANK.match(line))
    for line in lines:
        row = _NCCL_ROW.match(line)
        if row is None or num < 2:
            continue
        size_bytes, time_us, algorithm, bus = (float(row[i]) for i in (1, 3, 4, 5))
        if not (size_bytes and time_us and algorithm):
            continue
        once = (num - 1) / num
        twice = abs(bus / algorithm - 2 * once) < abs(bus / algorithm - once)
        name = "all_reduce" if twice else "all_gather" if row[2] == "none" else "reduce_scatter"
        yield _timing(name, num, int(size_bytes), time_us * 1e-6)


def _timing(collective: str, num: int, size_bytes: int, time_s: float) -> Timing:
    if not (2 <= num <= 1 << 20 and 1 <= size_bytes < 1 << 50 and 0 < time_s < 1e6):
        raise ValueError(f"{num} devices, {size_bytes} bytes, {time_s} s")
    if not math.isfinite(time_s):
        raise ValueError(f"{time_s} s")
    return Timing(collective=collective, num_devices=num, size_bytes=size_bytes, time_s=time_s)
