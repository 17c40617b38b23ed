"""``python -m benchmarks.optimize.cases``: dPRO's kinds of trainings, its passes alone and jointly.

Each network runs on 16 ranks with batches of 32, over a ring and over parameter servers, at three
rates; ``networks.py`` and ``job.py`` state what is assumed. Steps:

- *default*: nothing compiled, the framework's default messages;
- *compiled whole*: the whole network as one compiled module, with the default messages;
- *op fusion*: the best set of compiled modules, with the default messages;
- *sizes*: tensor fusion and partition, in the order of release;
- *order*: the default messages, the most urgent first;
- *modules first*: the search over modules with the default messages, then all of communication for
  its result; *messages first*: the other way round;
- *jointly*: one search over all of it.

The steps of *default* and *jointly* are replayed on graphs of all ranks, too: a difference from the
evaluator is an error. The exit code is 5 if the joint search is anywhere more than 0.1 % behind the
passes one after the other, or nowhere ahead of the better sequence by 0.5 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tests.schedule.scheduled_graph import build_scheduled

from augury.core.plan.problem import Scheme
from augury.optimize.search import Found, SearchOptions, search
from augury.optimize.space import Candidate
from augury.replay.run import replay
from benchmarks.measure import say
from benchmarks.optimize.job import Job
from benchmarks.optimize.job_space import JobSpace, by_need, by_size, by_size_and_need
from benchmarks.optimize.networks import network

NETWORKS = ("resnet50", "vgg16", "inception-v3", "bert-base")
RATES_GBIT = (10.0, 25.0, 100.0)
MOST_BEHIND_PCT = 0.1
LEAST_AHEAD_PCT = 0.5
IN_TURN = ("modules first", "messages first")
COLUMNS = ("default", "compiled whole", "op fusion", "sizes", "order", *IN_TURN, "jointly")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """Steps of one job under each set of passes."""

    network: str
    scheme: str
    gbit_per_s: float
    num_ranks: int
    steps_ns: dict[str, int]
    compiled_modules: int
    """Of the joint result; the next two are of it, too."""
    messages: int
    order: str
    candidates: int
    search_s: float
    replayed_ns: dict[str, int]

    @property
    def gain_pct(self) -> float:
        return _gain_pct(self.steps_ns["default"], self.steps_ns["jointly"])

    @property
    def ahead_pct(self) -> float:
        """Gain of the joint search over the better sequence of passes."""
        in_turn_ns = min(self.steps_ns[name] for name in IN_TURN)
        return _gain_pct(in_turn_ns, self.steps_ns["jointly"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--budget-s", type=float, default=10.0, help="CPU seconds of a search")
    options = parser.parse_args(arguments)
    rows = []
    for job in _jobs(options.only, options.ranks):
        row = case_row(job, budget_s=options.budget_s)
        rows.append(row)
        say(f"{row.network}, {row.scheme}, {row.gbit_per_s:g} Gbit/s: {row.gain_pct:.1f} %")
        if options.json:
            line = asdict(row) | {"gain_pct": row.gain_pct, "ahead_pct": row.ahead_pct}
            print(json.dumps(line), flush=True)
    if not options.json:
        print("\n".join(table(rows)))
    return 0 if holds(rows) else 5


def holds(rows: Sequence[CaseRow]) -> bool:
    is_replayed = all(
        step_ns == row.steps_ns[name] for row in rows for name, step_ns in row.replayed_ns.items()
    )
    ahead = [row.ahead_pct for row in rows]
    return is_replayed and min(ahead) >= -MOST_BEHIND_PCT and max(ahead) >= LEAST_AHEAD_PCT


def case_row(job: Job, *, budget_s: float) -> CaseRow:
    plain = JobSpace(job, fuses=False)
    fusing = JobSpace(job)
    fused = _searched(fusing, budget_s)
    steps_ns = {"default": _step_ns(_searched(plain, budget_s)), "op fusion": _step_ns(fused)}
    whole = JobSpace(job, fuses=False, compiled=[range(len(job.network.layers))])
    steps_ns["compiled whole"] = _step_ns(_searched(whole, budget_s))
    for name, compiler in (("sizes", by_size), ("order", by_need)):
        space = JobSpace(job, fuses=False, compiler=compiler)
        steps_ns[name] = _step_ns(_searched(space, budget_s))
    steps_ns["modules first"] = _messages_last(job, fusing, fused, budget_s)
    steps_ns["messages first"] = _messages_first(job, budget_s)
    joint = JobSpace(job, compiler=by_size_and_need)
    begin_s = time.process_time()
    found = _searched(joint, budget_s)
    search_s = time.process_time() - begin_s
    steps_ns["jointly"] = _step_ns(found)
    order = joint.order_of(found.best)
    return CaseRow(
        network=job.network.name,
        scheme=job.scheme.value,
        gbit_per_s=job.gbit_per_s,
        num_ranks=job.num_ranks,
        steps_ns={name: steps_ns[name] for name in COLUMNS},
        compiled_modules=len(joint.compiled_modules(found.best)),
        messages=len(order.pieces),
        order=order.policy,
        candidates=found.num_candidates,
        search_s=round(search_s, 2),
        replayed_ns={
            "default": _replayed_ns(joint, (0,) * len(joint.decisions)),
            "jointly": _replayed_ns(joint, found.best),
        },
    )


def table(rows: Sequence[CaseRow]) -> Iterator[str]:
    """Yields the lines of a table in Markdown."""
    yield (
        "| network | exchange | Gbit/s | "
        + " | ".join(COLUMNS)
        + " | gain | over the better sequence | over *compiled whole* | search |"
    )
    yield "|" + "---|" * (len(COLUMNS) + 7)
    for row in rows:
        steps = " | ".join(f"{row.steps_ns[name] / 1e6:.1f} ms" for name in COLUMNS)
        speedup = row.steps_ns["compiled whole"] / row.steps_ns["jointly"]
        yield (
            f"| {row.network} | {row.scheme} | {row.gbit_per_s:g} | {steps} |"
            f" {row.gain_pct:.1f} % | {row.ahead_pct:.1f} % | {speedup:.2f} x |"
            f" {row.candidates:,} in {row.search_s:.1f} s |"
        )
    ratios = [row.steps_ns["jointly"] / row.steps_ns["default"] for row in rows]
    mean = 100 * (1 - math.prod(ratios) ** (1 / max(1, len(ratios))))
    yield f"\nGeometric mean of the reduction over the default: {mean:.1f} %"


def _jobs(only: str, num_ranks: int) -> Iterator[Job]:
    for name in NETWORKS:
        for scheme in Scheme:
            for gbit_per_s in RATES_GBIT:
                if only in name:
                    yield Job(
                        network=network(name),
                        scheme=scheme,
                        gbit_per_s=gbit_per_s,
                        num_ranks=num_ranks,
                    )


def _messages_last(job: Job, fusing: JobSpace, fused: Found, budget_s: float) -> int:
    space = JobSpace(
        job,
        fuses=False,
        compiler=by_size_and_need,
        compiled=fusing.compiled_modules(fused.best),
    )
    return _step_ns(_searched(space, budget_s))


def _messages_first(job: Job, budget_s: float) -> int:
    sending = JobSpace(job, fuses=False, compiler=by_size_and_need)
    order = sending.order_of(_searched(sending, budget_s).best)
    return _step_ns(_searched(JobSpace(job, order=order), budget_s))


def _searched(space: JobSpace, budget_s: float) -> Found:
    options = SearchOptions(budget_s=budget_s, screen=False)
    return search(space, options=options, clock=time.process_time)


def _replayed_ns(space: JobSpace, candidate: Candidate) -> int:
    problem, order = space.problem_of(candidate), space.order_of(candidate)
    return replay(build_scheduled(problem, order, num_ranks=space.job.num_ranks)).step_ns


def _step_ns(found: Found) -> int:
    return found.evaluated[found.best].step_ns


def _gain_pct(before_ns: int, after_ns: int) -> float:
    return round(100 * (1 - after_ns / before_ns), 2)


if __name__ == "__main__":
    sys.exit(main())
