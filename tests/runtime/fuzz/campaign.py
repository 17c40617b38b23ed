"""Many programs, one after the other; what came of them is written down as it goes."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.runtime.fuzz.generate import program_of
from tests.runtime.fuzz.program import Program
from tests.runtime.fuzz.ranks import STANDSTILL_S, Ranks, Result

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("src/augury/core", "src/augury/schedule", "src/augury/runtime", "tests/runtime/fuzz")
RANKS_LAST = 150
"""A set of processes is replaced after so many programs."""
FULL_REPORTS = 20


@dataclass
class Tally:
    """``build/soak.json``."""

    sources: str = ""
    """Digest of the code that was run: other code starts anew."""
    first_seed: int = 0
    next_seed: int = 0
    programs: int = 0
    mismatches: int = 0
    hangs: int = 0
    seeds: list[int] = field(default_factory=list)
    """Of programs that failed."""
    ill_conditioned: list[int] = field(default_factory=list)
    """Seeds of programs that magnify rounding: with three ranks or more, stock DDP with another
    bucket size, and parameters changed in the last bit, differs as much as a plan does. They
    count as neither equal nor failed."""
    stock_hung: list[int] = field(default_factory=list)
    """Seeds of programs that hang under stock DDP, before any plan."""
    followed: int = 0
    """Programs of which at least one step was done under a plan."""
    steps: int = 0
    steps_followed: int = 0
    switched: int = 0
    """Programs that changed between a plan and stock DDP."""
    replanned: int = 0
    """Programs in which the runtime made a new plan."""
    stock_raised: int = 0
    """Programs that end with an exception, under stock DDP as well."""
    by_ranks: dict[str, int] = field(default_factory=dict)
    by_plan: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    """Why plans were not followed."""
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: Result) -> None:
        program = result.program
        self.programs += 1
        self.next_seed = max(self.next_seed, program.seed + 1)
        self.seconds = round(self.seconds + result.seconds, 3)
        self.hangs += bool(result.hung) and not result.is_stock_hang
        self.mismatches += not result.hung and not result.is_fine
        self.followed += result.least("num_followed") > 0
        self.steps += result.least("num_steps")
        self.steps_followed += result.least("num_followed")
        self.switched += result.least("num_switches") > 0
        self.replanned += result.least("num_replans") > 0
        self.stock_raised += any(report.get("stock_error") for report in result.reports)
        _count(self.by_ranks, [str(program.num_ranks)])
        _count(self.by_plan, [program.plans[0].kind])
        _count(self.reasons, result.reports[0].get("reasons", ()))
        if result.is_stock_hang:
            self.stock_hung.append(program.seed)
        if result.is_ill_conditioned:
            self.ill_conditioned.append(program.seed)
        if result.is_fine:
            return
        self.seeds.append(program.seed)
        if len(self.failures) < FULL_REPORTS:
            failure = {"seed": program.seed, "differences": result.differences}
            self.failures.append({**failure, "hung": result.hung})


def _count(into: dict[str, int], names: Iterable[str]) -> None:
    for name, number in Counter(names).items():
        into[name] = into.get(name, 0) + number


class Campaign:
    """Sets of ranks are started when they are first needed, and anew after a failure."""

    def __init__(self, standstill_s: float = STANDSTILL_S) -> None:
        self._standstill_s = standstill_s
        self._sets: dict[int, Ranks] = {}
        gc.collect()
        gc.freeze()  # forked processes share what is there

    def run(self, program: Program) -> Result:
        result = self._run(program)
        if result.differences and not result.hung and program.num_ranks > 2:
            stock = self._run(program, is_planned=False)
            result.stock_distance = 0.0 if stock.hung else stock.distance
            if math.isinf(result.stock_distance):
                result.stock_distance = 0.0
        return result

    def _run(self, program: Program, *, is_planned: bool = True) -> Result:
        ranks = self._sets.get(program.num_ranks)
        if ranks is None:
            ranks = Ranks(program.num_ranks, self._standstill_s)
            self._sets[program.num_ranks] = ranks
        try:
            result = ranks.run(program, is_planned=is_planned)
        except BaseException:
            self._sets.pop(program.num_ranks).end()
            raise
        if result.hung or not result.is_fine or ranks.num_run >= RANKS_LAST:
            self._sets.pop(program.num_ranks).end()
        return result

    def end(self) -> None:
        while self._sets:
            self._sets.popitem()[1].end()


def run_seeds(
    seeds: Iterable[int], tally: Tally, *, path: Path | None, show: Callable[[Result], None]
) -> None:
    campaign = Campaign()
    try:
        for seed in seeds:
            result = campaign.run(program_of(seed))
            tally.add(result)
            show(result)
            if path is not None:
                save_tally(tally, path)
    finally:
        campaign.end()


def save_tally(tally: Tally, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{time.time_ns()}")
    new.write_text(json.dumps(asdict(tally), indent=1) + "\n")
    new.replace(path)


def load_tally(path: Path) -> Tally | None:
    """None where there is none of this code."""
    try:
        tally = Tally(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return tally if tally.sources == digest_of_sources() else None


def digest_of_sources() -> str:
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).glob("**/*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
