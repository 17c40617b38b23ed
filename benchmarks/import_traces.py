"""Import of large Kineto traces beside HTA: CPU time, memory, growth with ranks, second load.

The traces are copies of ``scale_v100`` (53.7 MB unpacked) that differ in rank and clock, in a new
folder, so that nothing is cached. HTA imports them, breaks down the time of all ranks, computes
their overlap and finds the critical path of one rank; Augury imports, replays and diagnoses them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.command_costs import Cost, cost_of_command
from benchmarks.measure import at_least, at_most, report, say

HTA_PYTHON = Path("build/hta/bin/python")
NAMES = (
    "import_vs_hta_cpu",
    "import_vs_hta_rss",
    "import_64_vs_8_rss",
    "import_cached_vs_first_cpu",
    "diagnose_vs_hta_cpu",
)
_CLOCK_STEP_US = 417_309
_LOAD = """
import sys
from pathlib import Path
from augury.ingest.open_run import open_run
print(len(open_run(Path(sys.argv[1])).events))
"""


def all_figures() -> list[bool]:
    missing = _missing()
    if missing:
        for name in NAMES:
            print(json.dumps({"name": name, "skipped": missing}), flush=True)
        return []
    with tempfile.TemporaryDirectory(prefix="augury-bench-") as folder:
        return _measure(Path(folder))


def _missing() -> str:
    if not os.environ.get("AUGURY_TRACES"):
        return "AUGURY_TRACES is not set"
    if not _source().is_file():
        return f"{_source()} is missing"
    if not HTA_PYTHON.is_file():
        return f"{HTA_PYTHON} is missing: make env-hta"
    return ""


def _source() -> Path:
    return Path(os.environ["AUGURY_TRACES"]) / "scale_v100" / "rank1.json.gz"


def _measure(folder: Path) -> list[bool]:
    say("traces of 8 and 64 ranks")
    few = copies(folder / "traces-8", 8)
    say("HTA, 8 ranks")
    hta = cost_of_command(str(HTA_PYTHON), "benchmarks/hta_analysis.py", str(few))
    answers = json.loads(hta.output.splitlines()[-1])
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    if failed:
        raise RuntimeError(f"HTA failed: {failed}")
    hta_s, without_overlap_s = hta.cpu_s, hta.cpu_s - answers["overlap_s"]
    say("import, load, replay and diagnose, 8 ranks")
    imported = _augury("import", few, "-o", folder / "run-8")
    loaded = cost_of_command(sys.executable, "-c", _LOAD, str(folder / "run-8"))
    replayed = _augury("replay", folder / "run-8")
    both = imported.then(replayed)
    diagnosed = _augury("diagnose", folder / "run-8")
    many = copies(folder / "traces-64", 64)
    say("import, 64 ranks")
    imported_many = _augury("import", many, "-o", folder / "run-64")
    return [
        report(
            "import_vs_hta_cpu",
            without_overlap_s / both.cpu_s,
            "x",
            at_least(4),
            hta_s=round(without_overlap_s, 2),
            import_s=round(imported.cpu_s, 2),
            replay_s=round(replayed.cpu_s, 2),
        ),
        report(
            "import_vs_hta_rss",
            both.peak_bytes / hta.peak_bytes,
            "x",
            at_most(0.5),
            hta_mb=_mb(hta),
            import_mb=_mb(imported),
            replay_mb=_mb(replayed),
        ),
        report(
            "import_64_vs_8_rss",
            imported_many.peak_bytes / imported.peak_bytes,
            "x",
            at_most(1.5),
            ranks_8_mb=_mb(imported),
            ranks_64_mb=_mb(imported_many),
            ranks_64_s=round(imported_many.cpu_s, 2),
        ),
        report(
            "import_cached_vs_first_cpu",
            loaded.cpu_s / imported.cpu_s,
            "x",
            at_most(0.2),
            first_s=round(imported.cpu_s, 2),
            second_s=round(loaded.cpu_s, 2),
        ),
        report(
            "diagnose_vs_hta_cpu",
            hta_s / imported.then(diagnosed).cpu_s,
            "x",
            at_least(3),
            hta_s=round(hta_s, 2),
            import_s=round(imported.cpu_s, 2),
            diagnose_s=round(diagnosed.cpu_s, 2),
        ),
    ]


def _later(ahead_us: int, found: re.Match[bytes]) -> bytes:
    return b'"ts": %d' % (int(found[1]) + ahead_us)


def copies(folder: Path, num_ranks: int) -> Path:
    """Writes the trace of one rank once for each rank, each on a clock of its own."""
    from isal import igzip

    text: bytes = igzip.decompress(_source().read_bytes())  # type: ignore[no-untyped-call]
    folder.mkdir()
    for rank in range(num_ranks):
        told = b'"rank": %d, "world_size": %d' % (rank, num_ranks)
        own = re.sub(rb'"rank": \d+, "world_size": \d+', told, text, count=1)
        ahead_us = rank * _CLOCK_STEP_US
        own = re.sub(rb'"ts": (\d+)', partial(_later, ahead_us), own)
        (folder / f"rank{rank}.json.gz").write_bytes(igzip.compress(own, 1))
    return folder


def _augury(*arguments: object) -> Cost:
    command = str(Path(sys.executable).parent / "augury")
    return cost_of_command(command, *map(str, arguments))


def _mb(cost: Cost) -> float:
    return round(cost.peak_bytes / 1e6, 1)


if __name__ == "__main__":
    sys.exit(0 if all(all_figures()) else 5)
