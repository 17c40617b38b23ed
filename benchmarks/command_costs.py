"""CPU time and peak memory of a command with all of its child processes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    peak_bytes: int
    """Sum over the processes that ran at once; pages that they share are counted once."""
    output: str

    def then(self, later: Cost) -> Cost:
        """Cost of two commands, one after the other."""
        peak_bytes = max(self.peak_bytes, later.peak_bytes)
        return Cost(self.cpu_s + later.cpu_s, peak_bytes, later.output)


def cost_of_command(*arguments: str) -> Cost:
    """Raises a CalledProcessError if the command fails."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    peak_bytes = _Peak()
    is_over = threading.Event()
    sampler = threading.Thread(target=_sample, args=(process.pid, peak_bytes, is_over))
    sampler.start()
    output = process.stdout.read().decode(errors="replace")
    # The usage that wait4 returns includes children that the process has waited for.
    _, status, usage = os.wait4(process.pid, 0)
    is_over.set()
    sampler.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    # Its ru_maxrss would include the memory of this process before the command was loaded.
    return Cost(usage.ru_utime + usage.ru_stime, peak_bytes.value, output)


@dataclass
class _Peak:
    value: int = 0


def _sample(pid: int, peak_bytes: _Peak, is_over: threading.Event) -> None:
    while not is_over.is_set():
        together = sum(_field_bytes(one, "smaps_rollup", "Pss:") for one in _family(pid))
        alone = _field_bytes(pid, "status", "VmHWM:")  # also a peak between two samples
        peak_bytes.value = max(peak_bytes.value, together, alone)
        time.sleep(_SAMPLE_S)


def _family(pid: int) -> list[int]:
    """The process and its descendants."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in _family(child))]


def _field_bytes(pid: int, file: str, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0  # it has ended
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
