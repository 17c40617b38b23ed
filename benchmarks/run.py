"""``make bench``: performance as ratios, one JSON line each, all measured in one run.

Every figure is measured on graphs of several styles; the worst one is reported.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from tests.engines.simpy_model import simulate as simulate_in_simpy

from augury import _native
from augury.core.columns import I8
from augury.core.graph.graph import Carries, Graph
from augury.core.graph.graph_file import save_graph
from augury.core.graph.graph_spec import verify
from augury.replay import reference
from augury.replay.critical_path import critical_path
from augury.replay.fixed_order import FixedOrder
from augury.replay.fold import fold
from augury.replay.kernel import Replayer, simulate
from augury.replay.run import replay
from augury.replay.session import ReplaySession
from benchmarks import import_traces, rated
from benchmarks.graphs import STYLES, many_ranks, training
from benchmarks.measure import (
    Ratio,
    Work,
    at_least,
    at_most,
    cpu_seconds_of_command,
    extra_bytes_at_peak,
    ratio,
    report,
    report_worse,
    say,
    ten_times,
)
from benchmarks.optimize import speed
from benchmarks.oracle import sweep as oracle_sweep
from benchmarks.oracle import versus as oracle_versus
from benchmarks.recorded_graphs import RATED_STYLES, recorded


def main() -> int:
    held = [
        *against_other_engines(),
        against_sweep(),
        growth(),
        *folding(),
        memory(),
        *screening(),
        session(),
        *rated.all_figures(),
        *commands(),
        *import_traces.all_figures(),
        *speed.all_figures(),
        oracle_sweep.main() == 0,
        oracle_versus.main() == 0,
    ]
    return 0 if all(held) else 5


def against_other_engines() -> list[bool]:
    references: dict[str, Ratio] = {}
    models: dict[str, Ratio] = {}
    for style in STYLES:
        graph = training(style, 100_000)
        replayer = Replayer(graph)
        kernel = ten_times(replayer.simulate)
        say(f"100k {style}: reference")
        references[style] = ratio(partial(reference.simulate, graph), kernel, rounds=3).scaled(10)
        say(f"100k {style}: SimPy")
        models[style] = ratio(partial(simulate_in_simpy, graph), kernel, rounds=1).scaled(10)
    return [
        report_worse("replay_vs_reference_100k", references, "x", at_least(10)),
        report_worse("replay_vs_simpy_100k", models, "x", at_least(200)),
    ]


def against_sweep() -> bool:
    found = {style: sweeps(training(style, 1_000_000)) for style in STYLES}
    held = report_worse("replay_vs_sweep_1m", found, "x", at_most(15))
    # With more ranks, more of them are out of step, and the next operations lie further apart in
    # memory.
    wide = {style: sweeps(training(style, 1_000_000, num_ranks=64)) for style in STYLES}
    report_worse("replay_vs_sweep_1m_64_ranks", wide, "x")
    return held


def sweeps(graph: Graph) -> Ratio:
    say(f"{graph.num_ops:,} operations: longest-path sweep")
    return ratio(Replayer(graph).simulate, plain_sweep(graph), rounds=31)


def plain_sweep(graph: Graph) -> Work:
    before = graph.predecessors
    start_ns, end_ns = np.empty(graph.num_ops, np.int64), np.empty(graph.num_ops, np.int64)
    return lambda: _native.longest_path(
        graph.ops.work_ns, before.first, before.dst, start_ns, end_ns
    )


def growth() -> bool:
    """Measures nanoseconds per node, including the critical path."""
    found: dict[str, Ratio] = {}
    for style in STYLES:
        say(f"5m {style}: growth")
        small, large = training(style, 100_000), training(style, 5_000_000)
        per_node = large.num_ops / small.num_ops / 10
        measured = ratio(with_path(large), ten_times(with_path(small)), rounds=5)
        found[style] = measured.scaled(1 / per_node)
    return report_worse("growth_5m_vs_100k", found, "x", at_most(4))


def with_path(graph: Graph) -> Callable[[], object]:
    replayer = Replayer(graph)
    return lambda: critical_path(graph, replayer.simulate())


def folding() -> list[bool]:
    """Measures how much faster the folded graph replays; finding the classes is a line
    of its own."""
    held = []
    for name, num_classes, bound in (
        ("fold_1024_identical", 1, at_least(200)),
        ("fold_1024_16_classes", 16, at_least(40)),
    ):
        found: dict[str, Ratio] = {}
        detection: dict[str, Ratio] = {}
        for style in STYLES:
            say(f"{name} {style}")
            graph = many_ranks(style, 1024, num_classes)
            folded = fold(graph)
            assert folded is not None
            assert folded.num_classes == num_classes
            whole, small = Replayer(graph), Replayer(folded.graph)
            assert np.array_equal(
                whole.simulate().start_ns, folded.expand(small.simulate()).start_ns
            )
            found[style] = ratio(whole.simulate, ten_times(small.simulate), rounds=7).scaled(10)
            detection[style] = ratio(partial(fold, graph), whole.simulate, rounds=3)
        held.append(report_worse(name, found, "x", bound))
        report_worse(f"{name}_finding_classes_vs_replay", detection, "x")
    return held


def memory() -> bool:
    found: dict[str, Ratio] = {}
    for style in STYLES:
        say(f"5m {style}: memory")
        graph = training(style, 5_000_000)
        assert graph.num_gangs >= 0  # computed once, part of the input
        extra = extra_bytes_at_peak(partial(simulate, graph)) / graph.num_ops
        found[style] = Ratio(extra, extra, extra)
    return report_worse("replay_bytes_per_node", found, "B", at_most(64))


def screening() -> list[bool]:
    """Measures the cost of a candidate in a batch of 64, relative to an exact replay of it."""
    found: dict[str, Ratio] = {}
    for style in STYLES:
        say(f"screening {style}")
        graph = training(style, 20_000).evolve(carries=Carries.empty())
        order = FixedOrder(graph)
        rows = np.repeat(graph.ops.work_ns[None, :], 64, axis=0)
        one_by_one = partial(replay_each, Replayer(graph), rows)
        found[style] = ratio(one_by_one, partial(order.step_ns, rows), rounds=7)
    return [report_worse("replay_vs_screening_20k", found, "x", at_least(1))]


def session() -> bool:
    """Measures a full, verified replay relative to a session's step after a change in
    the middle."""
    found: dict[str, Ratio] = {}
    for style in RATED_STYLES:
        say(f"session {style}")
        graph = recorded(style, 100_000, num_ranks=4, is_loop=False)
        replays = ReplaySession(graph)
        middle = np.argsort(replays.replay().start_ns)[graph.num_ops // 2 :]
        touched = middle[graph.ops.gang[middle] < 0][:8]
        work_ns = graph.ops.work_ns.copy()
        work_ns[touched] += 1_000
        found[style] = ratio(
            partial(verified_replay, graph, work_ns),
            partial(replays.step_ns, work_ns[touched], touched=touched),
            rounds=7,
        )
    return report_worse("session_replay_vs_full", found, "x", at_least(1))


def verified_replay(graph: Graph, work_ns: I8) -> None:
    changed = graph.with_work_ns(work_ns)
    verify(changed)
    replay(changed)


def replay_each(replayer: Replayer, rows: I8) -> None:
    for row in rows:
        replayer.simulate(row)


def commands() -> list[bool]:
    augury = str(Path(sys.executable).parent / "augury")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.augury"
        save_graph(training("ring", 10_000), file)
        replay_s = cpu_seconds_of_command(augury, "replay", str(file))
    help_s = cpu_seconds_of_command(augury, "--help")
    return [
        report("help_cpu", help_s, "s", at_most(0.25)),
        report("replay_10k_cpu", replay_s, "s", at_most(0.6)),
    ]


if __name__ == "__main__":
    sys.exit(main())
