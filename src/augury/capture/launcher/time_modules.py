"""Times the modules of a job after it has ended, and adds the times to the record of rank 0."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from augury.capture.progress import ProgressLines
from augury.capture.rank_record import write_rank_record
from augury.capture.settings import Settings
from augury.capture.timing_process import TimingProcess
from augury.core.files import open_regular
from augury.core.json_depth import bounded_depth
from augury.core.trace.module_timing import ModuleTiming
from augury.core.trace.rank_record import RankRecord

RECORD = "rank-00000.json"
MAX_HEADER_BYTES = 64 << 20
MAX_TROUBLE_CHARS = 300


def time_modules(
    settings: Settings, environment: Mapping[str, str], *, has_succeeded: bool
) -> None:
    """Times the modules that rank 0 has stored, if the job ``has_succeeded``, and removes what was
    stored. Never raises: without times the record stays as it is. An interrupt (Ctrl-C) ends it at
    once."""
    snapshot = Path(settings.out) / settings.snapshot
    try:
        if has_succeeded and settings.times_modules and snapshot.is_file():
            timings = _time(snapshot, settings.calibrate_seconds, environment)
            _add_to_record(Path(settings.out), timings)
    except Exception:
        return
    except KeyboardInterrupt:
        return
    finally:
        with suppress(OSError):
            snapshot.unlink(missing_ok=True)


def _time(snapshot: Path, seconds: float, environment: Mapping[str, str]) -> list[ModuleTiming]:
    """Returns the times that are known when the process ends, its time is over, or the user
    interrupts it."""
    with open_regular(snapshot) as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            return []  # loading it could run another user's code
        header = file.readline(MAX_HEADER_BYTES)
    process = msgspec.json.decode(bounded_depth(header), type=TimingProcess)
    timings = [*process.refused]
    if not process.modules or process.host != socket.gethostname():
        return timings
    ProgressLines(0).timing_modules(seconds)
    try:
        for timing in process.timings(snapshot, seconds, environment):
            timings.append(timing)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        known = {path for timing in timings for path in timing.modules}
        if missing := [path for path in process.modules if path not in known]:
            trouble = str(error)[:MAX_TROUBLE_CHARS]
            timings.append(ModuleTiming(modules=missing, trouble=trouble))
    return timings


def _add_to_record(folder: Path, timings: list[ModuleTiming]) -> None:
    if timings:
        record = msgspec.json.decode((folder / RECORD).read_bytes(), type=RankRecord)
        write_rank_record(folder, msgspec.structs.replace(record, module_timings=timings))
