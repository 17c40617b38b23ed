"""``python -m benchmarks.schedule.random``: gap between policies and the bound on random problems.

Prints one JSON object: for every policy the gap of its step to the bound in per cent (median, 90th
percentile, largest), and its regret, which is the gap as a share of the exposed communication of
the policy, where there is any. The rivals together take longer to compile than ours, so only every
n-th instance is given to them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Scheme
from augury.schedule.evaluate import step_ns
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.augury import Augury
from augury.schedule.policies.baselines import RIVALS
from augury.schedule.policies.policy import Policy
from benchmarks.schedule.instances import instance

MOST_MEDIAN_PCT = 1.0
MOST_P90_PCT = 5.0
CHUNK = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One instance under one policy."""

    policy: str
    number: int
    scheme: Scheme
    gap_pct: float
    regret_pct: float
    num_pieces: int
    compile_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument(
        "--rivals-every", type=int, default=10, help="give the rivals every n-th instance; 0: none"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    begin_s = time.monotonic()
    chunks = [
        range(begin, min(options.count, begin + CHUNK)) for begin in range(0, options.count, CHUNK)
    ]
    work = partial(_rows_of, seed=options.seed, rivals_every=options.rivals_every)
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = [row for rows in pool.map(work, chunks) for row in rows]
    ours = _figures(rows, Augury().name)
    meets = ours["gap_pct"]["median"] <= MOST_MEDIAN_PCT and ours["gap_pct"]["p90"] <= MOST_P90_PCT
    print(
        json.dumps(
            {
                "instances": options.count,
                "seed": options.seed,
                "took_s": round(time.monotonic() - begin_s, 1),
                "goal": f"median <= {MOST_MEDIAN_PCT} %, p90 <= {MOST_P90_PCT} %",
                "holds": meets,
                "policies": {
                    name: _figures(rows, name) for name in dict.fromkeys(row.policy for row in rows)
                },
                "ours_by_scheme": {
                    scheme: _figures([row for row in rows if row.scheme is scheme], Augury().name)
                    for scheme in Scheme
                },
                "ours_behind_a_rival_pct": _behind(rows),
            },
            indent=2,
        )
    )
    return 0 if meets else 5


def _rows_of(numbers: Iterable[int], seed: int, rivals_every: int) -> list[Row]:
    return [
        _row(number, seed, policy)
        for number in numbers
        for policy in (
            (Augury(), *RIVALS) if rivals_every and number % rivals_every == 0 else (Augury(),)
        )
    ]


def _row(number: int, seed: int, policy: Policy) -> Row:
    problem = instance(number, seed=seed)
    begin_s = time.process_time()
    order = policy.compile(problem)
    compile_s = time.process_time() - begin_s
    verify_order(order, problem)
    took_ns, least_ns = step_ns(problem, order), lower_bound(problem)
    exposed_ns = took_ns - problem.compute_ns
    return Row(
        policy=policy.name,
        number=number,
        scheme=problem.network.scheme,
        gap_pct=100 * (took_ns / least_ns - 1),
        regret_pct=100 * (took_ns - least_ns) / exposed_ns if exposed_ns > 0 else 0.0,
        num_pieces=len(order.pieces),
        compile_s=compile_s,
    )


def _figures(rows: list[Row], policy: str) -> dict[str, dict[str, float]]:
    its = [row for row in rows if row.policy == policy]
    return {
        "gap_pct": _quantiles([row.gap_pct for row in its]),
        "regret_pct": _quantiles([row.regret_pct for row in its]),
        "pieces": _quantiles([float(row.num_pieces) for row in its]),
        "compile_ms": _quantiles([1000 * row.compile_s for row in its]),
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    median, p90, most = np.quantile(values, [0.5, 0.9, 1.0]).tolist()
    return {"median": round(median, 3), "p90": round(p90, 3), "max": round(most, 3)}


def _behind(rows: list[Row]) -> float:
    """Largest margin by which the best rival was better than ours."""
    ours = {row.number: 1 + row.gap_pct / 100 for row in rows if row.policy == Augury().name}
    behind = [100 * (ours[row.number] / (1 + row.gap_pct / 100) - 1) for row in rows]
    return round(max(behind, default=0.0), 3)


if __name__ == "__main__":
    sys.exit(main())
