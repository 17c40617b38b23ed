"""``python -m benchmarks.schedule.published``: the published ResNet-50 profile under all policies.

Prints step, forward waiting time and gap to the bound at five rates, and the regret of orders that
were compiled for another bandwidth than the real one. The exit code is 5 if ours is worse than
another policy by more than one per cent anywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Problem
from augury.report.console import columns, make_console
from augury.schedule.evaluate import evaluate
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.registry import POLICIES, find_policy
from benchmarks.schedule.resnet50 import GAPS_MS, LATER_GAPS_MS, OVERHEAD_NS, profile

PROFILES = {"584 ms": GAPS_MS, "196 ms": LATER_GAPS_MS}
RATES_GBIT = (1.0, 2.0, 3.0, 5.0, 10.0)
MISPREDICTED_PCT = (-50, -25, 25, 50, 100)
NEED_BANDWIDTH = ("augury", "prophet")
"""Policies that need the bandwidth in advance."""
OURS = "augury"
MOST_WORSE_PCT = 1.0
MIN_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy on one profile at one rate."""

    profile: str
    gbit_per_s: float
    ratio: float
    """Ratio of one-way communication time to compute time."""
    policy: str
    step_ns: int
    waiting_ns: int
    bound_ns: int
    gap_pct: float
    num_messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Cost of an order that was compiled for a mispredicted bandwidth."""

    profile: str
    gbit_per_s: float
    policy: str
    mispredicted_pct: int
    step_ns: int
    regret_pct: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parser.add_argument(
        "--overhead-us",
        type=int,
        default=OVERHEAD_NS // 1000,
        help="time of a message beyond its bytes (%(default)s)",
    )
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    regrets: list[Regret] = []
    for name, gaps_ms in PROFILES.items():
        for gbit_per_s in RATES_GBIT:
            problem = profile(gbit_per_s, gaps_ms, overhead_ns=1000 * options.overhead_us)
            rows += rows_of(name, gbit_per_s, problem)
            regrets += regrets_of(name, gbit_per_s, problem)
    worst_pct = max(worse_than_pct(rows).values())
    if options.json:
        document = {
            "schema_version": 1,
            "overhead_us": options.overhead_us,
            "rows": [asdict(row) for row in rows],
            "regrets": [asdict(regret) for regret in regrets],
            "ours_worse_at_most_pct": round(worst_pct, 3),
        }
        print(json.dumps(document))
    else:
        show(rows, regrets, worst_pct)
    return 0 if worst_pct <= MOST_WORSE_PCT else 5


def rows_of(name: str, gbit_per_s: float, problem: Problem) -> list[Row]:
    bound_ns = lower_bound(problem)
    rows = []
    for policy in POLICIES:
        order = policy.compile(problem)
        verify_order(order, problem)
        outcome = evaluate(problem, order)
        rows.append(
            Row(
                profile=name,
                gbit_per_s=gbit_per_s,
                ratio=round(problem.ratio, 3),
                policy=policy.name,
                step_ns=outcome.step_ns,
                waiting_ns=outcome.waiting_ns,
                bound_ns=bound_ns,
                gap_pct=_more_pct(outcome.step_ns, bound_ns),
                num_messages=len(order.pieces),
            )
        )
    return rows


def regrets_of(name: str, gbit_per_s: float, problem: Problem) -> list[Regret]:
    regrets = []
    for policy in map(find_policy, NEED_BANDWIDTH):
        right_ns = evaluate(problem, policy.compile(problem)).step_ns
        for pct in MISPREDICTED_PCT:
            order = policy.compile(mispredicted(problem, pct))
            step_ns = evaluate(problem, order).step_ns
            regrets.append(
                Regret(
                    profile=name,
                    gbit_per_s=gbit_per_s,
                    policy=policy.name,
                    mispredicted_pct=pct,
                    step_ns=step_ns,
                    regret_pct=_more_pct(step_ns, right_ns),
                )
            )
    return regrets


def mispredicted(problem: Problem, pct: int) -> Problem:
    """Returns the problem as a planner sees it that overestimates the bandwidth by ``pct``."""
    network = problem.network
    ns_per_byte = network.ns_per_byte / (1 + pct / 100)
    return replace(problem, network=replace(network, ns_per_byte=ns_per_byte))


def worse_than_pct(rows: Sequence[Row]) -> dict[tuple[str, float], float]:
    """Returns how much worse ours is than the best other policy, for each compared setting."""
    worse = {}
    for ours in (row for row in rows if row.policy == OURS):
        place = (ours.profile, ours.gbit_per_s)
        others = [
            row.step_ns
            for row in rows
            if (row.profile, row.gbit_per_s) == place and row.policy != OURS
        ]
        worse[place] = _more_pct(ours.step_ns, min(others))
    return worse


def show(rows: Sequence[Row], regrets: Sequence[Regret], worst_pct: float) -> None:
    console = make_console(sys.stdout)
    console.width = max(console.width, MIN_WIDTH)
    table = columns(
        "profile", ">Gbit/s", ">ratio", "policy", ">step", ">waiting", ">bound", ">gap", ">messages"
    )
    for row in rows:
        table.add_row(
            row.profile,
            f"{row.gbit_per_s:g}",
            f"{row.ratio:.2f}",
            row.policy,
            f"{row.step_ns / 1e6:.1f} ms",
            f"{row.waiting_ns / 1e6:.1f} ms",
            f"{row.bound_ns / 1e6:.1f} ms",
            f"{row.gap_pct:.2f} %",
            str(row.num_messages),
        )
    console.print(table)
    wrong = columns("profile", ">Gbit/s", "policy", *(f">{pct:+} %" for pct in MISPREDICTED_PCT))
    of_place: dict[tuple[str, float, str], list[Regret]] = {}
    for regret in regrets:
        place = (regret.profile, regret.gbit_per_s, regret.policy)
        of_place.setdefault(place, []).append(regret)
    for (name, gbit_per_s, policy), found in of_place.items():
        regret_pcts = (f"{regret.regret_pct:+.2f} %" for regret in found)
        wrong.add_row(name, f"{gbit_per_s:g}", policy, *regret_pcts)
    console.print("\nRegret if the bandwidth is mispredicted by")
    console.print(wrong)
    console.print(f"\nours is worse than the best other policy by at most {worst_pct:.2f} %")


def _more_pct(this_ns: int, that_ns: int) -> float:
    return round(100 * (this_ns / that_ns - 1), 3)


if __name__ == "__main__":
    sys.exit(main())
