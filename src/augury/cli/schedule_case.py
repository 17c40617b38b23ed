"""What ``augury schedule`` is asked about: a recorded run, a graph, or a bare problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from augury.cli.graphs import (
    import_numpy,
    read_graph,
    replay_graph,
    representation_of,
    run_cap,
)
from augury.cli.progress import working
from augury.core.ledger import Ledger
from augury.core.plan.problem import Problem, Scheme
from augury.core.units import parse_bandwidth, parse_time_ns

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.core.plan.plan import Order
    from augury.core.trace.trace import Calibration, Trace
    from augury.costs.collective_costs import Costs
    from augury.costs.prediction_interval import Representation
    from augury.predict.changes import Change

OtherNetwork = Callable[[Problem, int], Problem]
"""Of a problem and its number of ranks."""

RECORDED = "recorded"
QUIET_NOISE = 0.01
"""Where no steps show how much they vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCase:
    problem: Problem
    """By the fastest way that pieces can travel."""
    stock: Problem
    """By collectives, as stock DDP's buckets do."""
    num_ranks: int
    baseline: str
    """What gains are counted from."""
    baseline_ns: int
    baseline_order: Order
    bound_ns: int
    """Lower bound on every step that orders of this case are evaluated or replayed with."""
    noise: float
    """Half the interval of the baseline, as a share."""
    run: Representation | None = None
    """How well the recorded windows stand for the run."""
    measured_ns: int | None = None
    rewritten: Callable[[Order], Graph] | None = None
    """The recorded graph under an order; none where nothing was recorded."""
    ledger: Ledger = field(default_factory=Ledger)
    warnings: list[str] = field(default_factory=list)
    """What the runtime will not do, as far as the run tells."""

    def problem_of(self, order: Order) -> Problem:
        """As it is for whoever follows the order."""
        from augury.core.plan.plan import is_swapped
        from augury.schedule.policies.bucket_list import bucket_caps

        is_stock = bucket_caps(self.problem, order) is not None
        return self.stock if is_stock or not is_swapped(order, self.num_ranks) else self.problem


def open_case(
    path: Path, *, max_bytes: str | None, changes: Sequence[Change], other: OtherNetwork
) -> ScheduleCase:
    """``changes`` of the network are made to a recorded run, ``other`` is the same done to a
    problem that comes without one."""
    import_numpy()
    if path.suffix == ".json" and not path.is_dir():
        return _stated(path, other)
    if path.is_dir():
        return _recorded(path, changes, run_cap(max_bytes))
    graph = read_graph(path, max_bytes=max_bytes)
    if len(graph.gradients):
        return _of_graph(graph, [], {}, changes)
    return _layered(graph, other)


def _stated(path: Path, other: OtherNetwork) -> ScheduleCase:
    from augury.schedule.problem_file import load_problem

    stated = load_problem(path)
    return _bare(other(stated.problem, stated.num_ranks), stated.num_ranks)


def _bare(problem: Problem, num_ranks: int) -> ScheduleCase:
    """Held against what PyTorch does by default."""
    from augury.schedule.evaluate import step_ns
    from augury.schedule.lower_bound import lower_bound
    from augury.schedule.policies.registry import find_policy

    order = find_policy("ddp").compile(problem)
    return ScheduleCase(
        problem=problem,
        stock=problem,
        num_ranks=num_ranks,
        baseline="ddp",
        baseline_ns=step_ns(problem, order),
        baseline_order=order,
        bound_ns=lower_bound(problem),
        noise=QUIET_NOISE,
    )


def _layered(graph: Graph, other: OtherNetwork) -> ScheduleCase:
    from augury.build.problem.layer_problem import layer_problem

    return _bare(other(layer_problem(graph), graph.num_ranks), graph.num_ranks)


def _recorded(folder: Path, changes: Sequence[Change], max_bytes: int) -> ScheduleCase:
    from augury.build.recorded.forward_needs import forward_needs
    from augury.build.recorded.recorded_graph import build_recorded
    from augury.build.recorded.without_plan import build_unplanned, has_pieces
    from augury.ingest.open_run import open_run

    with working(f"reading {folder}"):
        trace = open_run(folder, max_bytes=max_bytes)
    with working(f"building the graph of {len(trace.events):,} events"):
        recorded = build_recorded(trace)
        graph = build_unplanned(trace) if has_pieces(trace) else recorded
        case = _of_graph(graph, trace.calibration, forward_needs(trace), changes, recorded=recorded)
    return replace(case, warnings=_warnings(trace))


def _warnings(trace: Trace) -> list[str]:
    reasons = dict.fromkeys(reason for facts in trace.ranks for reason in facts.refusals)
    return [
        f"`augury run --plan` will not follow a plan in this job, and keep stock DDP: {reason}"
        for reason in reasons
    ]


def _of_graph(
    graph: Graph,
    calibration: Sequence[Calibration],
    needs: dict[str, float],
    changes: Sequence[Change],
    *,
    recorded: Graph | None = None,
) -> ScheduleCase:
    """``recorded``: what gains are counted from, where that is another graph: orders are put in
    place of stock DDP's buckets, which a run that followed a plan has not."""
    from augury.build.problem.recorded_problem import recorded_order, recorded_problem
    from augury.core.measured_step import measured_step_ns
    from augury.core.plan.plan import is_swapped
    from augury.core.vocabulary.torch import GLOO_THREADS
    from augury.costs.collective_costs import fit_network
    from augury.costs.p2p_exchange import fit_p2p
    from augury.costs.piece_costs import extra_during_compute, piece_costs
    from augury.costs.runtime_overhead import NO_OVERHEAD, RuntimeOverhead
    from augury.passes.communication_order import COMMUNICATION_ORDER
    from augury.passes.pieces.piece_exchange import OrderedPieces
    from augury.passes.protocol import Scene
    from augury.predict.replay_bound import Ways, replay_bound
    from augury.schedule.lower_bound import lower_bound
    from augury.schedule.policies.bucket_list import bucket_caps

    ledger = Ledger()
    costs: Costs = fit_network(graph, calibration)
    beside = extra_during_compute(graph, piece_costs(costs, calibration, Ledger()), calibration)
    recorded = graph if recorded is None else recorded
    is_same = recorded is graph
    if not is_same:
        # Messages of pieces tell of the network too.
        costs = fit_network(recorded, calibration) | costs
    measured_ns = measured_step_ns(recorded)
    run = representation_of(replay_graph(recorded))
    scene = Scene(graph=graph, costs=costs, calibration=tuple(calibration))
    own = scene if is_same else replace(scene, graph=recorded)
    for change in changes:
        scene = change.apply(scene).scene
        own = scene if is_same else change.apply(own).scene
        measured_ns = None
    graph, costs, recorded = scene.graph, scene.costs, own.graph
    known = piece_costs(costs, calibration, ledger)
    before = replay_graph(graph)
    baseline = before if is_same else replay_graph(recorded)
    stock = recorded_problem(before, known, needs=needs, during_compute=beside, ledger=ledger)
    swaps = fit_p2p(costs, calibration) if graph.num_ranks == 2 else None
    problem = stock
    if swaps is not None:
        problem = recorded_problem(before, known, needs=needs, p2p=swaps, ledger=Ledger())
    shared = piece_costs(costs, calibration, Ledger(), at_once=GLOO_THREADS)

    def rewritten(order: Order) -> Graph:
        """Buckets of stock DDP share the link, pieces of a plan as it says; two ranks swap them."""
        is_stock = bucket_caps(problem, order) is not None
        if swaps and not is_stock and is_swapped(order, scene.graph.num_ranks):
            pieces = OrderedPieces(
                problem=problem, order=order, costs=known, p2p=swaps, overhead=RuntimeOverhead()
            )
        else:
            concurrent = GLOO_THREADS if is_stock else order.lanes
            pieces = OrderedPieces(
                problem=stock,
                order=order,
                costs=shared if concurrent > 1 else known,
                during_compute=beside,
                concurrent=concurrent,
                overhead=NO_OVERHEAD if is_stock else RuntimeOverhead(),
            )
        return COMMUNICATION_ORDER.apply(scene, pieces).scene.graph

    with working("bounding what any order could reach"):
        ways = Ways(costs=(known, shared), during_compute=beside, p2p=swaps)
        bounds_ns = [replay_bound(graph, stock, ways), lower_bound(stock), lower_bound(problem)]
    return ScheduleCase(
        problem=problem,
        stock=stock,
        num_ranks=graph.num_ranks,
        baseline=RECORDED,
        baseline_ns=baseline.step_ns,
        baseline_order=recorded_order(graph, stock),
        bound_ns=min(bounds_ns),
        noise=noise_of(run),
        run=run,
        measured_ns=measured_ns,
        rewritten=rewritten,
        ledger=ledger,
    )


def noise_of(run: Representation | None) -> float:
    """Of gains, which compare replays of the same windows: how sure the level of these is. What
    differs from run to run is in both."""
    from augury.costs.prediction_interval import NINE_OF_TEN

    return max(QUIET_NOISE, NINE_OF_TEN * run.recorded.error) if run is not None else QUIET_NOISE


def other_network(bandwidth: str | None, latency: str | None) -> OtherNetwork:
    """The same as ``changes.bandwidth`` and ``changes.latency``, of a problem."""
    from augury.predict.changes import factor_of

    def change(problem: Problem, num_ranks: int) -> Problem:
        network = problem.network
        is_reduced = network.scheme is Scheme.ALL_REDUCE
        if bandwidth is not None:
            share = 2 * (num_ranks - 1) / num_ranks if is_reduced else 1.0
            factor = factor_of(bandwidth)
            ns_per_byte = (
                share * 1e9 / parse_bandwidth(bandwidth)
                if factor is None
                else network.ns_per_byte / factor
            )
            network = replace(network, ns_per_byte=ns_per_byte)
        if latency is not None:
            factor = factor_of(latency)
            more_ns = 0 if factor is not None else parse_time_ns(latency.removeprefix("+"))
            rounds = 2 * max(1, num_ranks - 1) if is_reduced else 1
            network = replace(
                network,
                overhead_ns=round(network.overhead_ns * (factor or 1.0)),
                latency_ns=round(network.latency_ns * (factor or 1.0)) + rounds * more_ns,
            )
        return replace(problem, network=network)

    return change
