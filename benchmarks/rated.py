"""The engine of recorded runs, with shared links and interference; and whole replays.

python -m benchmarks.rated
"""

from __future__ import annotations

import sys
from functools import partial

import augury
from augury.core.graph.graph import Graph
from augury.replay import reference
from augury.replay.kernel import Replayer, simulate
from benchmarks.graphs import STYLES, training
from benchmarks.measure import (
    Bound,
    Ratio,
    at_least,
    at_most,
    extra_bytes_at_peak,
    ratio,
    report,
    report_worse,
    say,
    ten_times,
)
from benchmarks.recorded_graphs import RATED_STYLES, crowded, recorded


def main() -> int:
    return 0 if all(all_figures()) else 5


def all_figures() -> list[bool]:
    return [against_reference(), *size(), *crowds(), full_replay()]


def against_reference() -> bool:
    found: dict[str, Ratio] = {}
    for style in RATED_STYLES:
        say(f"100k {style}: reference")
        graph = recorded(style, 100_000)
        kernel = ten_times(Replayer(graph).simulate)
        found[style] = ratio(partial(reference.simulate, graph), kernel, rounds=3).scaled(10)
    return report_worse("rated_vs_reference_100k", found, "x", at_least(50))


def size() -> list[bool]:
    """Measures nanoseconds per operation, and bytes beyond the input."""
    growth: dict[str, Ratio] = {}
    extra: dict[str, Ratio] = {}
    for style in RATED_STYLES:
        say(f"1m {style}: growth and memory")
        small, large = recorded(style, 100_000), recorded(style, 1_000_000)
        growth[style] = _growth(small, large, rounds=5)
        extra[style] = _bytes_per_op(large)
    return [
        report_worse("rated_growth_1m_vs_100k", growth, "x", at_most(2)),
        report_worse("rated_bytes_per_node", extra, "B", at_most(128)),
    ]


def crowds() -> list[bool]:
    """Measures graphs in which all flows share one link."""
    say("64k flows on one link: growth and memory")
    small, large = crowded(8_000), crowded(64_000)
    extra = _bytes_per_op(large)
    held = [
        _report("rated_crowded_64k_vs_8k", _growth(small, large, rounds=15), at_most(2)),
        report("rated_crowded_bytes_per_node", extra.value, "B", at_most(256)),
    ]
    small, large = (crowded(number, is_shuffled=True) for number in (8_000, 64_000))
    _report("rated_crowded_shuffled_64k_vs_8k", _growth(small, large, rounds=15), None)
    return held


def _report(name: str, found: Ratio, bound: Bound | None) -> bool:
    low, high = round(found.low, 3), round(found.high, 3)
    return report(name, found.value, "x", bound, low=low, high=high)


def _growth(small: Graph, large: Graph, *, rounds: int) -> Ratio:
    per_op = large.num_ops / small.num_ops / 10
    once = Replayer(large).simulate
    measured = ratio(once, ten_times(Replayer(small).simulate), rounds=rounds)
    return measured.scaled(1 / per_op)


def _bytes_per_op(graph: Graph) -> Ratio:
    assert graph.num_gangs >= 0  # computed once, part of the input
    extra = extra_bytes_at_peak(partial(simulate, graph)) / graph.num_ops
    return Ratio(extra, extra, extra)


def full_replay() -> bool:
    """Measures all of ``augury.replay`` (steady state, critical path, memory, utilization), each
    time on a graph without cached results."""
    found: dict[str, Ratio] = {}
    for style in (*STYLES, *RATED_STYLES):
        say(f"128k {style}: whole replay")
        if style in RATED_STYLES:
            graph = recorded(style, 128_000, is_loop=True)
        else:
            graph = training(style, 128_000)
        kernel = ten_times(Replayer(graph).simulate)
        found[style] = ratio(partial(_replay_anew, graph), kernel, rounds=9).scaled(10)
    return report_worse("full_replay_vs_kernel", found, "x", at_most(15))


def _replay_anew(graph: Graph) -> None:
    augury.replay(graph.evolve())


if __name__ == "__main__":
    sys.exit(main())
