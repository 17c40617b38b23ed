"""Facts of rank records beside events: gradients, memory, calibration, host and plan."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import numpy as np

from augury.core.columns import I8, Table
from augury.core.enums import MemoryKind
from augury.core.ledger import Ledger
from augury.core.plan.plan_status import PlanStatus, WindowMode
from augury.core.trace.rank_record import RankRecord
from augury.core.trace.trace import Calibration, Clock, CpuUse, GradientEvents, MemoryUse, RankFacts
from augury.ingest.collectives.calls import group_ranks
from augury.ingest.collectives.launch_times import ready_order
from augury.ingest.trace_builder import TraceBuilder

MAX_CORES = 1 << 20


def rank_facts(record: RankRecord, clock: Clock, piece_groups: list[int]) -> RankFacts:
    first = record.ddp[0] if record.ddp else None
    return RankFacts(
        rank=record.rank,
        host=record.host,
        framework=record.framework,
        cores=min(max(0, record.cores or 0), MAX_CORES),
        core_numbers=record.core_numbers,
        cpu_limit=record.cpu_limit,
        num_threads=record.num_threads,
        command=record.command,
        job_command=record.job_command,
        trouble=record.trouble,
        clock=clock,
        bucket_cap_bytes=first.bucket_cap_bytes if first else None,
        first_bucket_cap_bytes=first.first_bucket_cap_bytes if first else None,
        gradient_as_bucket_view=first.gradient_as_bucket_view if first else None,
        cpu_use=_cpu_use(record),
        speed=record.speed,
        plan=record.plan if isinstance(record.plan, PlanStatus) else None,
        module_timings=record.module_timings,
        modules=record.modules,
        tells_of_plan=record.plan is not msgspec.UNSET,
        window_modes=[
            WindowMode(first=window.first, last=window.last, mode=window.training_mode)
            for window in record.all_windows
            if window.trace is not None and window.training_mode is not None
        ],
        piece_groups=piece_groups,
        refusals=record.refusals,
    )


def _cpu_use(record: RankRecord) -> CpuUse | None:
    if len(record.machine) < 2:
        return None
    first, last = record.machine
    used = CpuUse(
        wall_ns=last.at_ns - first.at_ns,
        process_ns=last.process_cpu_ns - first.process_cpu_ns,
        machine_ns=last.busy_ns - first.busy_ns,
    )
    return used if min(used.wall_ns, used.process_ns, used.machine_ns) > 0 else None


def gradients_of(records: list[RankRecord], builder: TraceBuilder) -> GradientEvents:
    rows: list[tuple[int, ...]] = []
    for record in records:
        buckets = [(one, b) for one, ddp in enumerate(record.ddp) for b in ddp.buckets]
        numbers = {
            (one, parameter): at
            for at, (one, bucket) in enumerate(buckets)
            for parameter in bucket.parameters
        }
        for order, (one, parameter) in enumerate(ready_order(record.ddp)):
            ddp = record.ddp[one]
            rows.append(
                (
                    record.rank,
                    order,
                    builder.strings.number(ddp.parameters[parameter].name),
                    ddp.parameters[parameter].size_bytes,
                    numbers.get((one, parameter), -1),
                    builder.group(group_ranks(record, ddp.group)),
                )
            )
    columns: dict[str, Any] = _by_name(GradientEvents, rows)
    return GradientEvents(**columns)


def memory_of(records: list[RankRecord], builder: TraceBuilder, ledger: Ledger) -> MemoryUse:
    kinds = {kind.label: kind for kind in MemoryKind}
    rows: list[tuple[int, ...]] = []
    for record in records:
        for piece in record.memory:
            if piece.kind not in kinds:
                ledger.note("unknown-memory", "memory has an unknown kind; it is counted as other")
            kind = kinds.get(piece.kind, MemoryKind.OTHER)
            layer = builder.strings.number(piece.layer)
            rows.append((record.rank, kind, layer, piece.size_bytes))
    columns: dict[str, Any] = _by_name(MemoryUse, rows)
    return MemoryUse(**columns)


def _by_name(table: type[Table], rows: list[tuple[int, ...]]) -> dict[str, I8]:
    names = [name for name, _ in table.schema()]
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(names)).T
    return dict(zip(names, columns, strict=True))


def calibration_of(records: list[RankRecord], builder: TraceBuilder) -> list[Calibration]:
    """Each repetition counts with its shortest duration over ranks, which has no waiting in it."""
    found: dict[tuple[str, int, int, int, bool], list[tuple[list[int], float | None]]]
    found = defaultdict(list)
    for record in records:
        for entry in record.calibration:
            group = builder.group(group_ranks(record, entry.group))
            key = (
                entry.collective,
                group,
                entry.size_bytes,
                entry.concurrent,
                entry.beside_compute,
            )
            found[key].append((entry.durations_ns, entry.compute_rate))
    result = []
    for (collective, group, size_bytes, concurrent, beside), entries in found.items():
        rates = [rate for _, rate in entries if rate is not None]
        result.append(
            Calibration(
                collective=collective,
                group=group,
                size_bytes=size_bytes,
                concurrent=concurrent,
                beside_compute=beside,
                durations_ns=[
                    min(same) for same in zip(*(times for times, _ in entries), strict=False)
                ],
                compute_rate=min(rates) if rates else None,
            )
        )
    return result
