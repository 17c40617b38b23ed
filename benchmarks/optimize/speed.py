"""``python -m benchmarks.optimize.speed``: speed of the search on runs of 16 ranks.

The space is that of ``augury optimize``, on runs in the form of recorded ones (``job_graph.py``):
ResNet-50 and BERT over a ring. Compiled modules and the order of gradients are searched. All times
are CPU seconds of one process. Lines:

- ``search_cpu``: time until the best step is within 1 % of the last one that the search finds,
  including the opening of the run;
- ``search_vs_full_kernel``: candidates per second of the search over those of full replays: each
  candidate applied to the graph, and all ranks and operations replayed by the kernel. A candidate
  is a set of modules with an order of gradients. Orders that are scored while communication is
  compiled for a set of modules count as well (``orders``): without the evaluator of orders, each
  of them would need a replay;
- ``search_without_...``: time until within 0.1 % of that step if one accelerator is switched off,
  over the time with all of them. Where the budget ends first, that is a lower bound, and the job is
  listed in ``not_reached``.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from augury.core.plan.plan import PlanSection
from augury.core.plan.problem import Scheme
from augury.optimize.scene_space import SceneSpace
from augury.optimize.search import Found, SearchOptions, search
from augury.optimize.space import Candidate, Decision, Evaluated
from augury.predict.plan_prediction import PlannedRun, with_sections
from augury.replay.run import replay
from augury.schedule.search.robust_cost import Judge
from benchmarks.measure import Bound, at_least, at_most, report, say
from benchmarks.optimize.job import Job
from benchmarks.optimize.job_graph import planned_run
from benchmarks.optimize.networks import network

JOBS = {"resnet50": ("resnet50", 25.0), "bert": ("bert-base", 25.0)}
SECTIONS = (PlanSection.FUSION, PlanSection.COMMUNICATION)
BUDGET_S = 60.0
NEAR, NEARER = 1.01, 1.001
NUM_FULL = 6
"""Candidates that are replayed in full."""
ACCELERATORS = {
    "coarsening": "coarsen",
    "symmetry": "fold",
    "partial": "partial",
    "screening": "screen",
}
"""Names of the switches in SearchOptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedJob:
    """One job, searched with all accelerators."""

    run: PlannedRun
    space: SceneSpace
    found: Found
    num_orders: int
    """Orders that were scored while communication was compiled."""
    opening_s: float
    search_s: float

    @property
    def final_ns(self) -> int:
        return self.found.evaluated[self.found.best].step_ns

    def reached_s(self, factor: float) -> float:
        """Returns when a step within this factor of the last one was found."""
        limit_ns = factor * self.final_ns
        return next(one.elapsed_s for one in self.found.history if one.step_ns <= limit_ns)


def main() -> int:
    return 0 if all(all_figures()) else 5


def all_figures() -> list[bool]:
    jobs = {name: searched(name) for name in JOBS}
    held = [
        _worst(
            "search_cpu",
            {name: one.opening_s + one.reached_s(NEAR) for name, one in jobs.items()},
            "s",
            at_most(BUDGET_S),
            candidates={name: one.found.num_candidates for name, one in jobs.items()},
            whole_s={name: round(one.search_s, 1) for name, one in jobs.items()},
        ),
        _worst(
            "search_vs_full_kernel",
            {name: against_full_replays(name, one) for name, one in jobs.items()},
            "x",
            at_least(10),
            combinations={name: one.found.num_candidates for name, one in jobs.items()},
            orders={name: one.num_orders for name, one in jobs.items()},
        ),
    ]
    for accelerator in ACCELERATORS:
        spaces = {name: without(name, accelerator, one) for name, one in jobs.items()}
        ratios = {
            name: spaces[name].elapsed_s / one.reached_s(NEARER) for name, one in jobs.items()
        }
        _worst(
            f"search_without_{accelerator}",
            ratios,
            "x",
            None,
            not_reached=[name for name, space in spaces.items() if not space.is_near],
        )
    return held


def searched(name: str) -> SearchedJob:
    say(f"{name}: searching")
    begin_s = time.process_time()
    model, gbit_per_s = JOBS[name]
    job = Job(network=network(model), scheme=Scheme.ALL_REDUCE, gbit_per_s=gbit_per_s)
    run = planned_run(job)
    options = SearchOptions(budget_s=BUDGET_S)
    space = SceneSpace(run, SECTIONS, options=options)
    opened_s = time.process_time()
    with scored_orders() as num_scored:
        found = search(space, options=options, clock=time.process_time)
    return SearchedJob(
        run=run,
        space=space,
        found=found,
        num_orders=num_scored[0],
        opening_s=opened_s - begin_s,
        search_s=time.process_time() - opened_s,
    )


def against_full_replays(name: str, job: SearchedJob) -> float:
    say(f"{name}: full replays")
    every = list(job.found.evaluated)
    some = every[:: -(-len(every) // NUM_FULL)]
    begin_s = time.process_time()
    for candidate in some:
        scene = with_sections(job.run.scene, job.space.sections_of(candidate))
        compiled = job.space.order_of(candidate)
        if compiled is not None:
            order = compiled.order.order
            scene = job.run.with_order(scene, order, is_stock=compiled.is_stock).scene
        replay(scene.graph, fold=False)
    full_s = (time.process_time() - begin_s) / len(some)
    return full_s * (job.found.num_candidates + job.num_orders) / job.search_s


@contextmanager
def scored_orders() -> Iterator[list[int]]:
    """Counts the orders that searches for an order score: the only item of the list."""
    score, count = Judge.judged, [0]

    def counted(judge: Judge, *arguments: Any) -> Any:
        count[0] += 1
        return score(judge, *arguments)

    Judge.judged = counted  # type: ignore[assignment, method-assign]
    try:
        yield count
    finally:
        Judge.judged = score  # type: ignore[method-assign]


def without(name: str, accelerator: str, job: SearchedJob) -> WatchedSpace:
    say(f"{name}: without {accelerator}")
    options = SearchOptions(budget_s=BUDGET_S, **{ACCELERATORS[accelerator]: False})
    space = WatchedSpace(SceneSpace(job.run, SECTIONS, options=options), NEARER * job.final_ns)
    search(space, options=options, clock=space.clock)
    return space


class WatchedSpace:
    """A space whose clock ends the search once a step is short enough."""

    def __init__(self, space: SceneSpace, near_ns: float) -> None:
        self._space, self._near_ns = space, near_ns
        self._began_s = time.process_time()
        self.is_near = False
        self.elapsed_s = 0.0

    @property
    def decisions(self) -> Sequence[Decision]:
        return self._space.decisions

    def evaluate(self, candidate: Candidate) -> Evaluated | None:
        found = self._space.evaluate(candidate)
        if found is not None and found.step_ns <= self._near_ns and not self.is_near:
            self.clock()
            self.is_near = True
        return found

    def estimate(self, candidates: Sequence[Candidate]) -> list[Evaluated] | None:
        return self._space.estimate(candidates)

    def compiled(self, candidate: Candidate) -> list[Candidate]:
        return self._space.compiled(candidate)

    def clock(self) -> float:
        if self.is_near:
            return math.inf
        self.elapsed_s = time.process_time() - self._began_s
        return self.elapsed_s


def _worst(
    name: str, found: dict[str, float], unit: str, bound: Bound | None, **details: object
) -> bool:
    """Reports the worst of all jobs, and each of them."""
    is_upper = bound is not None and bound.is_upper
    value = (max if is_upper else min)(found.values())
    each = {job: round(one, 3) for job, one in found.items()}
    return report(name, value, unit, bound, **each, **details)


if __name__ == "__main__":
    sys.exit(main())
