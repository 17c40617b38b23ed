"""Collects the facts of this rank and writes them as its record, ``rank-00000.json``."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from augury.capture.cpu_limit import cpu_limit
from augury.capture.framework import FrameworkFacts
from augury.capture.process_identity import num_restarts, rank_name
from augury.capture.step_log import StepTimeLog
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import PlanStatus, TrainingMode
from augury.core.trace.rank_record import (
    MAX_CORE_NUMBERS,
    SCHEMA_VERSION,
    CalibrationRecord,
    Handshake,
    RankRecord,
    RecordedCall,
    RecordedMemory,
    RecordedWindow,
)

MAX_TROUBLE_CHARS = 2000


class RankNotes:
    """Everything that the record says besides steps, windows and calls."""

    def __init__(self) -> None:
        self.facts = FrameworkFacts()
        self.handshakes: list[Handshake] = []
        self.calibration: list[CalibrationRecord] = []
        self.trouble: str | None = None
        self._mode: tuple[bool, str] | None = None
        """Whether a trial was due, and the mode that was in force otherwise."""
        self._settled_step: int | None = None

    def add_trouble(self, trouble: str) -> None:
        text = f"{self.trouble}; {trouble}" if self.trouble else trouble
        self.trouble = text[:MAX_TROUBLE_CHARS]

    def add_memory(self, memory: list[RecordedMemory]) -> None:
        self.facts.memory = [*(self.facts.memory or []), *memory]

    def note_training_mode(self, step: int) -> None:
        """A change that is known when a step ends takes effect in the next step."""
        status = board.status
        if status is None:
            return
        applied = [one.section.value for one in status.sections if one.is_applied]
        in_force = " ".join([status.mode.value, *applied])
        mode = (board.is_trial_due, "" if board.is_trial_due else in_force)
        if mode != self._mode:
            self._mode = mode
            is_stock = status.mode is TrainingMode.STOCK and not applied
            is_changed = bool(status.trials) or not is_stock
            self._settled_step = step + 1 if is_changed else None

    def plan_status(self) -> PlanStatus | None:
        status = board.status
        if status is not None and not board.is_trial_due:
            return msgspec.structs.replace(status, settled_step=self._settled_step)
        return status


def build_record(
    *,
    rank: int,
    world_size: int,
    job: str,
    framework: str,
    notes: RankNotes,
    steps: StepTimeLog,
    windows: list[RecordedWindow],
    calls: list[RecordedCall],
    job_command: Sequence[str] = (),
) -> RankRecord:
    facts = notes.facts
    return RankRecord(
        schema_version=SCHEMA_VERSION,
        rank=rank,
        world_size=world_size,
        job=job,
        start=num_restarts(),
        framework=framework,
        host=socket.gethostname(),
        pid=os.getpid(),
        python=sys.version.split()[0],
        cores=len(os.sched_getaffinity(0)),
        core_numbers=sorted(os.sched_getaffinity(0))[:MAX_CORE_NUMBERS],
        cpu_limit=cpu_limit(),
        num_threads=facts.num_threads or 0,
        command=sys.argv,
        job_command=list(job_command),
        trouble=notes.trouble,
        windows=windows,
        step_end_ns=steps.end_ns,
        resumed=steps.resumed,
        step_cpu=steps.cpu,
        step_delay_ns=steps.delay_ns,
        speed=steps.speed,
        machine=steps.machine,
        calls=calls,
        plan=notes.plan_status(),
        pieces=board.pieces.told(),
        groups=facts.groups or [],
        modules=facts.modules or {},
        ddp=facts.ddp or [],
        memory=facts.memory or [],
        refusals=facts.refusals or [],
        handshake=notes.handshakes,
        calibration=notes.calibration,
    )


def write_rank_record(folder: Path, record: RankRecord) -> None:
    """Replaces the file as a whole, because it may be read at any time."""
    path = folder / f"{rank_name(record.rank)}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_bytes(_encode(record))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _encode(record: RankRecord) -> bytes:
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:  # a command line or path with bytes that are no UTF-8
        text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False)
        return text.encode(errors="replace")
