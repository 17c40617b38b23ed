"""Many mutated files in several processes, watched for crashes and hangs, with a tally."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.mutated_files.worker import Failure, work

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("src/augury", "tests/mutated_files")
REGISTRY = "tests.mutated_files.readers"
CHUNK = 500
"""Seeds that a worker gets at a time."""
HANG_S = 10.0
WORKER_LASTS = 40_000
"""Files after which a worker is replaced, so that fragmented memory is no failure."""
START_S = 180.0
FULL_REPORTS = 50


@dataclass
class FileTally:
    """``build/soak-files.json``."""

    sources: str = ""
    """Digest of the code that was run: other code starts anew."""
    first_seed: int = 0
    next_seed: int = 0
    files: int = 0
    read: int = 0
    """Files that were accepted in spite of the mutation."""
    refused: int = 0
    failures: int = 0
    """Files that ended in another exception, a crash, or too much memory."""
    hangs: int = 0
    seeds: list[int] = field(default_factory=list)
    """Seeds of files that failed or hung."""
    by_reader: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    reports: list[dict[str, Any]] = field(default_factory=list)

    def add(self, outcomes: list[tuple[str, Any]]) -> None:
        for kind, found in outcomes:
            self.files += 1
            name = found.reader if isinstance(found, Failure) else found
            self.by_reader[name] = self.by_reader.get(name, 0) + 1
            if kind == "read":
                self.read += 1
            elif kind == "refused":
                self.refused += 1
            else:
                self.hangs += kind == "hung"
                self.failures += kind == "failed"
                self.seeds.append(found.seed)
                if len(self.reports) < FULL_REPORTS:
                    self.reports.append({"kind": kind} | asdict(found))


class _Worker:
    """A process that reads mutated files, and the chunk that it has."""

    def __init__(self, registry: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.current = context.RawArray("q", 2)
        self.process = context.Process(
            target=work, args=(theirs, self.current, registry), daemon=True
        )
        self.process.start()
        theirs.close()
        self.started_s = time.monotonic()
        self.scratch: str | None = None
        self.seeds: tuple[int, int] | None = None
        self.outcomes: list[tuple[str, Any]] = []
        self.num_read = 0

    @property
    def busy_s(self) -> float:
        """Seconds for which the current file has been read."""
        since_ns = self.current[1]
        return (time.monotonic_ns() - since_ns) / 1e9 if since_ns else 0.0

    def give(self, seeds: tuple[int, int], outcomes: list[tuple[str, Any]] | None = None) -> None:
        self.seeds = seeds
        self.outcomes = [] if outcomes is None else outcomes
        self.num_read += seeds[1] - seeds[0]
        self.connection.send((seeds[0] + len(self.outcomes), seeds[1]))

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def run_campaign(
    tally: FileTally,
    end_seed: int,
    *,
    jobs: int = 2,
    registry: str = REGISTRY,
    hang_s: float = HANG_S,
    show: Callable[[FileTally], None] = lambda _: None,
) -> None:
    """Adds the files of all seeds up to ``end_seed`` to the tally, in the order of the seeds."""
    chunks = _chunks(tally.next_seed, end_seed)
    finished: dict[int, tuple[int, list[tuple[str, Any]]]] = {}
    pending: list[tuple[tuple[int, int], list[tuple[str, Any]]]] = []
    workers: list[_Worker] = []
    begun_s, before_s = time.monotonic(), tally.seconds
    try:
        while tally.next_seed < end_seed:
            while len(workers) < jobs:
                workers.append(_Worker(registry))
            ready = wait([one.connection for one in workers], timeout=0.5)
            for worker in list(workers):
                if worker.connection in ready and not _receive(worker, finished):
                    _note_crash(worker)
                elif worker.seeds is not None and worker.busy_s > hang_s:
                    _note(worker, "hung", f"no end after {worker.busy_s:.0f} s")
                elif worker.scratch is None:
                    assert time.monotonic() - worker.started_s < START_S, "a worker did not start"
                    continue
                elif worker.seeds is not None:
                    continue
                elif worker.num_read < WORKER_LASTS:
                    chunk = pending.pop() if pending else next(chunks, None)
                    if chunk is not None:
                        worker.give(*chunk)
                    continue
                # The worker crashed, hangs or has lasted: another one continues its chunk.
                if worker.seeds is not None:
                    pending.append((worker.seeds, worker.outcomes))
                worker.end()
                workers.remove(worker)
            while tally.next_seed in finished:
                end, outcomes = finished.pop(tally.next_seed)
                tally.add(outcomes)
                tally.next_seed = end
                tally.seconds = round(before_s + time.monotonic() - begun_s, 1)
                show(tally)
    finally:
        for worker in workers:
            worker.end()


def _chunks(first: int, end: int) -> Iterator[tuple[tuple[int, int], list[tuple[str, Any]]]]:
    for seed in range(first, end, CHUNK):
        yield (seed, min(seed + CHUNK, end)), []


def _receive(worker: _Worker, finished: dict[int, tuple[int, list[tuple[str, Any]]]]) -> bool:
    """Takes all messages of a worker; returns whether it is alive."""
    try:
        while worker.connection.poll():
            kind, found = worker.connection.recv()
            if kind == "ready":
                worker.scratch = found
            elif kind == "done":
                assert worker.seeds is not None
                finished[worker.seeds[0]] = (worker.seeds[1], worker.outcomes)
                worker.seeds = None
            else:
                worker.outcomes.append((kind, found))
    except (EOFError, ConnectionError):
        return False
    return True


def _note_crash(worker: _Worker) -> None:
    worker.process.join(10)
    code = worker.process.exitcode
    if worker.seeds is None:
        raise AssertionError(f"a worker ended with {code} before its first file")
    _note(worker, "failed", f"the process ended with {code}")


def _note(worker: _Worker, kind: str, report: str) -> None:
    """Adds an outcome for the file that ended the worker."""
    assert worker.seeds is not None
    seed = worker.seeds[0] + len(worker.outcomes)
    worker.outcomes.append((kind, Failure(seed, "process", "", report)))


def save_tally(tally: FileTally, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{time.time_ns()}")
    new.write_text(json.dumps(asdict(tally), indent=1) + "\n")
    new.replace(path)


def load_tally(path: Path) -> FileTally | None:
    """Returns None where there is none of this code."""
    try:
        tally = FileTally(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return tally if tally.sources == digest_of_sources() else None


def digest_of_sources() -> str:
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).glob("**/*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
