"""Mutates files and reads them, in a process whose memory is limited."""

from __future__ import annotations

import importlib
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from augury.core.errors import InputError, UsageError
from tests.mutated_files.good_files import GoodFiles
from tests.mutated_files.mutate import mutate
from tests.mutated_files.readers import Reader

MEMORY_CAP_BYTES = 1 << 30
"""Address space that reading one file may take, beyond that of the process with all imports."""
MAX_REPORT_CHARS = 3_000


@dataclass(frozen=True)
class MutatedFile:
    seed: int
    reader: Reader
    good: GoodFiles
    name: str
    content: bytes


@dataclass(frozen=True)
class Failure:
    seed: int
    reader: str
    name: str
    report: str


class FileMutator:
    """Makes the mutated file of each seed, and lets its reader read it."""

    def __init__(self, registry: str, scratch: Path) -> None:
        self.readers: tuple[Reader, ...] = importlib.import_module(registry).READERS
        self._scratch = scratch
        self._good = {reader.name: reader.good() for reader in self.readers}
        self._pool = [
            content
            for several in self._good.values()
            for good in several
            for content in good.files.values()
        ]
        self._weights = [reader.weight for reader in self.readers]
        self._folders: dict[tuple[str, int], Path] = {}

    def make(self, seed: int) -> MutatedFile:
        dice = random.Random(seed)
        reader = dice.choices(self.readers, self._weights)[0]
        good = dice.choice(self._good[reader.name])
        name = dice.choice(good.targets)
        return MutatedFile(seed, reader, good, name, mutate(good.original(name), dice, self._pool))

    def read(self, file: MutatedFile) -> bool:
        """Returns whether the file was accepted; other exceptions than refusals are raised."""
        folder = self._folder(file.reader, file.good)
        changed = {file.name: file.content}
        if file.good.seal is not None:
            changed = file.good.seal(file.good.files, file.name, file.content) | changed
        for name, content in changed.items():
            (folder / name).write_bytes(content)
        try:
            file.reader.read(folder)
        except (InputError, UsageError):
            return False
        finally:
            for name in changed:
                (folder / name).write_bytes(file.good.files[name])
        return True

    def read_good_files(self) -> None:
        """Imports what readers import when first used, and shows that all good files are read."""
        for reader in self.readers:
            for good in self._good[reader.name]:
                name = good.targets[0]
                assert self.read(MutatedFile(-1, reader, good, name, good.files[name])), reader.name

    def _folder(self, reader: Reader, good: GoodFiles) -> Path:
        key = reader.name, id(good)
        if key not in self._folders:
            folder = self._scratch / str(len(self._folders)) / "run"
            folder.mkdir(parents=True)
            for name, content in good.files.items():
                (folder / name).write_bytes(content)
            self._folders[key] = folder
        return self._folders[key]


def work(connection: Connection, current: Any, registry: str) -> None:
    """Reads ranges of seeds until None comes. ``current`` states the seed, and when it began."""
    scratch = Path(tempfile.mkdtemp(dir=_memory_folder(), prefix="augury-mutated-"))
    try:
        mutator = FileMutator(registry, scratch)
        mutator.read_good_files()
        limit = _virtual_bytes() + MEMORY_CAP_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        # Rust libraries print their panics, which Augury turns into errors.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        connection.send(("ready", str(scratch)))
        while (seeds := connection.recv()) is not None:
            for seed in range(*seeds):
                current[0], current[1] = seed, time.monotonic_ns()
                connection.send(_outcome(mutator, seed))
            current[1] = 0
            connection.send(("done", seeds[1]))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _outcome(mutator: FileMutator, seed: int) -> tuple[str, Any]:
    """The kind of the outcome: read, refused or failed."""
    file = None
    try:
        file = mutator.make(seed)
        return ("read" if mutator.read(file) else "refused", file.reader.name)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        report = traceback.format_exc()[-MAX_REPORT_CHARS:]
        name, reader = (file.name, file.reader.name) if file else ("", "mutation")
        return ("failed", Failure(seed, reader, name, report))


def _memory_folder() -> str | None:
    """A folder in memory, so that a million files wear out no disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
