"""The process that times modules after a job: how it starts, and what it reports until a deadline.

It is separate from the job, whose processes have ended by then: modules run there with random
values, compile and may fail, and the deadline ends it whatever it does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from augury.core.trace.module_timing import MAX_TIMINGS, ModuleTiming

MAX_LINE_BYTES = 16 << 20
MAX_TROUBLE_CHARS = 300
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from augury.capture.torch.module_times.timing_main import main;"
    " main(sys.argv[2], float(sys.argv[3]), sys.argv[4])"
)
_JOB_VARIABLES = "AUGURY_"
"""Beginning of the names of variables with which a job is recorded or follows a plan."""


class TimingProcess(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the process: as the rank that stored the modules was started."""

    host: str
    executable: str
    path: list[str]
    """``sys.path`` of the rank."""
    folder: str
    """Working directory of the rank."""
    modules: list[str] = []
    """Paths of the stored modules."""
    refused: list[ModuleTiming] = []
    """Modules that could not be stored, with the reason."""

    def timings(
        self, snapshot: Path, seconds: float, environment: Mapping[str, str]
    ) -> Iterator[ModuleTiming]:
        """Yields timings as the process reports them. Ends it after ``seconds``, and when the
        caller stops. Raises an OSError if the process fails."""
        deadline = time.monotonic() + seconds
        words = [json.dumps(self.path), str(snapshot), str(seconds)]
        with tempfile.TemporaryFile() as errors, _temporary_folder() as folder:
            child = subprocess.Popen(  # noqa: S603
                [self.executable, "-c", _START, *words, folder],
                cwd=self.folder if os.path.isdir(self.folder) else None,
                env=_environment(environment),
                stdin=subprocess.PIPE,  # never written: the process ends when this one does
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # compilers that it starts end with it
            )
            assert child.stdout is not None
            assert child.stdin is not None
            try:
                for line in _lines(child.stdout, deadline):
                    yield msgspec.json.decode(line, type=ModuleTiming)
                if time.monotonic() < deadline and child.wait(timeout=5):
                    raise OSError(f"the process that times modules failed: {_last_line(errors)}")
            finally:
                with suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                child.stdin.close()
                child.stdout.close()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for compilers, which leave their temporary files when they are killed."""
    return tempfile.TemporaryDirectory(prefix="augury-", ignore_cleanup_errors=True)


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in inherited.items() if not name.startswith(_JOB_VARIABLES)}
    # One after the other, in the process itself: workers would take the cores from each other.
    return kept | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def _lines(file: IO[bytes], deadline: float) -> Iterator[bytes]:
    """Yields complete lines until the file or the time ends."""
    rest, num_lines = b"", 0
    while (left_s := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([file], [], [], left_s)
        if not ready:
            return
        data = os.read(file.fileno(), 1 << 16)
        *lines, rest = (rest + data).split(b"\n")
        num_lines += len(lines)
        if len(rest) > MAX_LINE_BYTES or num_lines > MAX_TIMINGS:
            raise OSError("the process that times modules reports too much")
        yield from lines
        if not data:
            return


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - (1 << 12)))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:MAX_TROUBLE_CHARS] if lines else "it said nothing"
