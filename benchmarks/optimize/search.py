"""Speed of the search over combinations of changes, with and without each accelerator.

python -m benchmarks.optimize.search
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from augury.core.graph.graph import Graph
from augury.optimize.search import Found, SearchOptions, search
from augury.optimize.space import Candidate
from augury.replay.run import replay
from benchmarks.measure import at_most, cpu_seconds, report, say
from benchmarks.optimize.synthetic_space import MODELS, SyntheticSpace

OPTIONS = SearchOptions(budget_s=600, num_restarts=2)
NUM_FULL = 5
"""Candidates that are replayed in full, to time one of them."""
WITHIN = 1.01


def main() -> int:
    return 0 if all(all_figures()) else 5


def all_figures() -> list[bool]:
    whole = {model: _searched(model, OPTIONS) for model in MODELS}
    held = [_against_full_replays(whole), _time_to_final_value(whole)]
    for name in ("screen", "coarsen", "fold", "partial"):
        slower = {}
        for model, (_, spent_s) in whole.items():
            say(f"search of {model} without {name}")
            _, without_s = _searched(model, replace(OPTIONS, **{name: False}))
            slower[model] = round(without_s / spent_s, 3)
        held.append(report(f"search_without_{name}", min(slower.values()), "x", None, **slower))
    return held


def _searched(model: str, options: SearchOptions) -> tuple[Found, float]:
    """Returns a search, and its processor time."""
    say(f"search of {model}")
    space = SyntheticSpace(model, options)
    space.prepare()
    begun = time.process_time()
    found = search(space, options=options)
    return found, time.process_time() - begun


def _against_full_replays(whole: dict[str, tuple[Found, float]]) -> bool:
    """Candidates of the search in the time of one full replay by the kernel."""
    ratios = {}
    for model, (found, spent_s) in whole.items():
        space = SyntheticSpace(model, OPTIONS)
        every: list[Candidate] = list(found.evaluated)[:NUM_FULL]
        graphs = [space.graph_of(candidate) for candidate in every]
        full_s = cpu_seconds(partial(_replay_all, graphs))
        ratios[model] = round(full_s / len(every) * found.num_candidates / spent_s, 3)
    return report("search_vs_full_kernel", min(ratios.values()), "x", None, **ratios)


def _replay_all(graphs: Sequence[Graph]) -> None:
    for graph in graphs:
        replay(graph, fold=False)


def _time_to_final_value(whole: dict[str, tuple[Found, float]]) -> bool:
    """Seconds until the best step was within 1 % of the final one."""
    seconds = {}
    for model, (found, _) in whole.items():
        final_ns = found.evaluated[found.best].step_ns
        near = [one.elapsed_s for one in found.history if one.step_ns <= WITHIN * final_ns]
        seconds[model] = round(near[0], 3)
        gained = 1 - final_ns / found.history[0].step_ns
        say(f"{model}: {found.num_candidates} candidates, gain {100 * gained:.1f} %")
    return report("search_within_1pct_s", max(seconds.values()), "s", at_most(60), **seconds)


if __name__ == "__main__":
    sys.exit(main())
