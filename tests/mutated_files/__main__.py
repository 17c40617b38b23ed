"""Mutated files from the command line.

    python -m tests.mutated_files --count 1000000 --out build/soak-files.json
    python -m tests.mutated_files --only 17 23
    python -m tests.mutated_files --write 17 FOLDER

A file that the same code has written is continued. Exit code 5: a file failed or hung.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.mutated_files.campaign import (
    REGISTRY,
    FileTally,
    digest_of_sources,
    load_tally,
    run_campaign,
    save_tally,
)
from tests.mutated_files.worker import FileMutator

SAVE_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutated_files", description=__doc__)
    parser.add_argument("--seed", type=int, help="first seed (else: continue, or 0)")
    parser.add_argument("--count", type=int, default=1_000_000, help="files in all")
    parser.add_argument("--out", type=Path, help="where the tally is written")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="read these alone")
    parser.add_argument("--write", nargs=2, metavar=("SEED", "FOLDER"), help="write a mutated file")
    options = parser.parse_args()
    if options.write is not None:
        return write(int(options.write[0]), Path(options.write[1]))
    if options.only is not None:
        return read_alone(options.only)
    tally = load_tally(options.out) if options.out is not None and options.seed is None else None
    if tally is None:
        first = options.seed or 0
        tally = FileTally(sources=digest_of_sources(), first_seed=first, next_seed=first)
    shown_s = time.monotonic()

    def show(tally: FileTally) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s > SAVE_S:
            shown_s = time.monotonic()
            print(describe(tally), flush=True)
            if options.out is not None:
                save_tally(tally, options.out)

    run_campaign(tally, tally.first_seed + options.count, jobs=options.jobs, show=show)
    if options.out is not None:
        save_tally(tally, options.out)
    print(describe(tally))
    for report in tally.reports:
        print(f"{report['kind']}: seed {report['seed']}, {report['reader']}, {report['name']}")
        print(report["report"])
    return 5 if tally.seeds else 0


def describe(tally: FileTally) -> str:
    rate = tally.files / tally.seconds if tally.seconds else 0.0
    return (
        f"{tally.files:,} files: {tally.read:,} read, {tally.refused:,} refused,"
        f" {tally.failures:,} failures, {tally.hangs:,} hangs; {rate:.0f} files/s"
    )


def read_alone(seeds: list[int]) -> int:
    """Reads files in this process, without limits, so that exceptions show where they come from."""
    with tempfile.TemporaryDirectory() as scratch:
        mutator = FileMutator(REGISTRY, Path(scratch))
        for seed in seeds:
            file = mutator.make(seed)
            print(f"{seed}: {file.reader.name}, {file.name}, {len(file.content):,} bytes", end="")
            print(": read" if mutator.read(file) else ": refused", flush=True)
    return 0


def write(seed: int, folder: Path) -> int:
    """Writes a mutated file with the good files beside it."""
    with tempfile.TemporaryDirectory() as scratch:
        file = FileMutator(REGISTRY, Path(scratch)).make(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**file.good.files, file.name: file.content}.items():
        (folder / name).write_bytes(content)
    print(f"{file.reader.name}: wrote {folder / file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
