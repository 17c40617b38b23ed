"""Fuzzing from the command line.

    python -m tests.runtime.fuzz --count 2000 --out build/soak.json
    python -m tests.runtime.fuzz --show 17
    python -m tests.runtime.fuzz --only 17 23
    python -m tests.runtime.fuzz --shrink 17

A file that the same code has written is continued. Exit code 5: a program failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.runtime.fuzz.campaign import (
    Tally,
    digest_of_sources,
    load_tally,
    run_seeds,
    save_tally,
)
from tests.runtime.fuzz.generate import program_of
from tests.runtime.fuzz.program import text_of
from tests.runtime.fuzz.ranks import Result
from tests.runtime.fuzz.shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="first seed (else: continue, or 0)")
    parser.add_argument("--count", type=int, default=2000, help="programs in all")
    parser.add_argument("--out", type=Path, help="where the tally is written")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="run these alone")
    parser.add_argument("--show", type=int, metavar="SEED", help="print a program")
    parser.add_argument(
        "--shrink", type=int, metavar="SEED", help="find a smaller program that fails"
    )
    parser.add_argument("--verbose", action="store_true", help="also what the runtime says")
    options = parser.parse_args()
    if options.show is not None:
        print(text_of(program_of(options.show)))
        return 0
    if options.shrink is not None:
        return shrink(program_of(options.shrink))
    tally = None
    if options.out is not None and options.seed is None and options.only is None:
        tally = load_tally(options.out)
    if tally is None:
        first = options.seed or 0
        tally = Tally(sources=digest_of_sources(), first_seed=first, next_seed=first)
    seeds = options.only or range(tally.next_seed, tally.first_seed + options.count)

    def show(result: Result) -> None:
        if result.is_stock_hang:
            how = "hangs under stock DDP"
        elif result.is_ill_conditioned:
            how = f"magnifies rounding: {result.distance:.2g}, "
            how += f"stock DDP itself {result.stock_distance:.2g}"
        elif result.is_fine:
            how = f"{result.least('num_followed')} of {result.least('num_steps')} steps planned"
        else:
            how = "HANGS\n" + result.hung if result.hung else "DIFFERS"
            how += "".join(f"\n  {one}" for one in result.differences)
        program = result.program
        kind = program.plans[0].kind
        print(
            f"{program.seed}: {program.num_ranks} ranks, {kind}: {how} ({result.seconds:.2f} s)",
            flush=True,
        )
        if options.verbose:
            for rank, report in enumerate(result.reports):
                for name in ("said", "stock_error", "planned_error"):
                    if report.get(name):
                        print(f"  rank {rank}, {name}: {report[name]}", flush=True)

    run_seeds(seeds, tally, path=options.out, show=show)
    if options.out is not None:
        save_tally(tally, options.out)
    print(
        f"{tally.programs} programs, {tally.mismatches} mismatches, {tally.hangs} hangs, "
        f"{len(tally.ill_conditioned)} magnify rounding, "
        f"{tally.followed} followed a plan, {tally.replanned} planned anew",
        flush=True,
    )
    return 5 if tally.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
