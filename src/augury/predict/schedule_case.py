"""The case that policies are assessed on: a recorded run, a graph, or a bare problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from augury.build.problem.layer_problem import layer_problem
from augury.build.problem.recorded_problem import recorded_order
from augury.build.problem.step_parts import NO_GRADIENTS, NO_GRADIENTS_REMEDY
from augury.build.recorded.device.device_graph import has_device
from augury.build.recorded.forward_needs import forward_needs
from augury.build.recorded.gradient_reads import reads_gradients
from augury.build.recorded.without_plan import build_unplanned, has_pieces
from augury.core.errors import InputError
from augury.core.ledger import Ledger, Severity
from augury.core.measured_step import measured_step_ns
from augury.core.plan.plan import is_swapped
from augury.core.plan.problem import Problem, Scheme
from augury.core.progress import Progress, silent
from augury.core.units import parse_bandwidth, parse_time_ns
from augury.core.vocabulary.torch import GLOO_THREADS
from augury.costs.collective_costs import fit_network
from augury.costs.p2p_exchange import fit_p2p
from augury.costs.piece_costs import extra_during_compute, piece_costs
from augury.costs.prediction_interval import SIGMAS_OF_90_PCT
from augury.passes.protocol import Scene
from augury.predict import changes
from augury.predict.changes import factor_of
from augury.predict.prediction import representation_of
from augury.predict.replays import replay_graph
from augury.predict.scheduled_graph import ScheduledGraph, problems_of
from augury.schedule.evaluate import step_ns
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.bucket_list import bucket_caps
from augury.schedule.policies.registry import find_policy
from augury.schedule.problem_file import load_problem

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.core.plan.plan import Order
    from augury.core.trace.trace import Calibration, Trace
    from augury.costs.collective_costs import Costs
    from augury.costs.prediction_interval import Representation
    from augury.predict.changes import Change
    from augury.predict.opened_run import OpenedRun

RECORDED = "recorded"
QUIET_NOISE = 0.01
"""Relative noise that is assumed where no recorded steps show their variation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCase:
    problem: Problem
    """Costs of the fastest transport for pieces."""
    stock: Problem
    """Costs of collectives, as stock DDP's buckets use them."""
    num_ranks: int
    baseline: str
    """Name of the order that gains are counted from."""
    baseline_ns: int
    baseline_order: Order
    bound_ns: int
    """Lower bound on every step that orders of this case are evaluated or replayed with."""
    noise: float
    """Half the width of the baseline's interval, as a share."""
    run: Representation | None = None
    """How well the recorded windows represent the run."""
    measured_ns: int | None = None
    run_digest: str = ""
    """Digest of the recorded run's files; empty where there is no run."""
    scheduled: ScheduledGraph | None = None
    """The recorded graph; None where nothing was recorded."""
    ledger: Ledger = field(default_factory=Ledger)
    warnings: list[str] = field(default_factory=list)
    """Reasons why the runtime will refuse a plan, as far as the run shows them."""
    needs_barrier: bool = False
    """Whether the program itself waits for all gradients before it updates parameters."""

    def as_followed(self, order: Order) -> Order:
        """The order as this program can follow it."""
        return replace(order, has_barrier=True) if self.needs_barrier else order

    def problem_of(self, order: Order) -> Problem:
        """The problem with the costs of the transport that the order uses."""
        is_stock = bucket_caps(self.problem, order) is not None
        return self.stock if is_stock or not is_swapped(order, self.num_ranks) else self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNetwork:
    """Another bandwidth or latency, as the options ``--bandwidth`` and ``--latency`` state them."""

    bandwidth: str | None = None
    latency: str | None = None

    def changes(self) -> list[Change]:
        """The changes of a recorded graph."""
        return [
            *([changes.bandwidth(self.bandwidth)] if self.bandwidth is not None else []),
            *([changes.latency(self.latency)] if self.latency is not None else []),
        ]

    def of_problem(self, problem: Problem, num_ranks: int) -> Problem:
        """The same changes made to a problem that has no recorded graph."""
        network = problem.network
        is_reduced = network.scheme is Scheme.ALL_REDUCE
        if self.bandwidth is not None:
            share = 2 * (num_ranks - 1) / num_ranks if is_reduced else 1.0
            factor = factor_of(self.bandwidth)
            ns_per_byte = (
                share * 1e9 / parse_bandwidth(self.bandwidth)
                if factor is None
                else network.ns_per_byte / factor
            )
            network = replace(network, ns_per_byte=ns_per_byte)
        if self.latency is not None:
            factor = factor_of(self.latency)
            more_ns = 0 if factor is not None else parse_time_ns(self.latency.removeprefix("+"))
            rounds = 2 * max(1, num_ranks - 1) if is_reduced else 1
            network = replace(
                network,
                overhead_ns=round(network.overhead_ns * (factor or 1.0)),
                latency_ns=round(network.latency_ns * (factor or 1.0)) + rounds * more_ns,
            )
        return replace(problem, network=network)


def open_case(run: OpenedRun, network: OtherNetwork | None = None) -> ScheduleCase:
    """The case of a recorded run, a graph (.augury) or a problem (.json), on another network."""
    network = network or OtherNetwork()
    changes = network.changes()
    if run.path.suffix == ".json" and not run.is_recorded:
        stated = load_problem(run.path)
        return bare_case(network.of_problem(stated.problem, stated.num_ranks), stated.num_ranks)
    if run.is_recorded:
        return _recorded(run, changes)
    graph = run.graph
    if len(graph.gradients):
        return graph_case(graph, [], {}, changes, progress=run.progress)
    return bare_case(network.of_problem(layer_problem(graph), graph.num_ranks), graph.num_ranks)


def bare_case(problem: Problem, num_ranks: int) -> ScheduleCase:
    """A problem without a recorded graph; gains are counted from PyTorch's default buckets."""
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


def _recorded(run: OpenedRun, changes: Sequence[Change]) -> ScheduleCase:
    recorded, trace = run.graph, run.trace
    graph = build_unplanned(trace) if has_pieces(trace) else recorded
    if not len(graph.gradients) and (error := no_gradients(trace)) is not None:
        raise error
    case = graph_case(
        graph,
        trace.calibration,
        forward_needs(trace),
        changes,
        recorded=recorded,
        progress=run.progress,
    )
    needs_barrier = reads_gradients(trace)
    if needs_barrier:
        case.ledger.note(
            "gradients-read",
            "the program reads gradients between backward and the update, as clipping does: it"
            " waits for all of them, in every order",
            severity=Severity.INFO,
        )
    return replace(
        case, run_digest=run.digest, warnings=_warnings(trace), needs_barrier=needs_barrier
    )


def _warnings(trace: Trace) -> list[str]:
    return [
        f"`augury run --plan` will not follow a plan in this job, but keep stock DDP: {reason}"
        for reason in _refusals(trace)
    ]


def no_gradients(trace: Trace) -> InputError | None:
    """Returns the reason why a run does not say which gradient travels in which bucket; None if it
    states none."""
    if has_device(trace):
        return InputError(
            f"{NO_GRADIENTS}: which kernel makes a gradient is not known on devices",
            remedy="use `augury whatif` and `augury diagnose`: orders of gradients are planned for"
            " jobs on processors",
        )
    if reasons := _refusals(trace):
        return InputError(f"{NO_GRADIENTS}: {'; '.join(reasons)}", remedy=NO_GRADIENTS_REMEDY)
    if len(trace.gradients):
        return InputError(
            f"{NO_GRADIENTS}: what backward computes does not fill the buckets of"
            " DistributedDataParallel, as where parameters are not used",
            remedy="freeze unused parameters before the model is wrapped (requires_grad=False),"
            " and record the job again",
        )
    return None


def _refusals(trace: Trace) -> list[str]:
    return list(dict.fromkeys(reason for facts in trace.ranks for reason in facts.refusals))


def graph_case(
    graph: Graph,
    calibration: Sequence[Calibration],
    needs: dict[str, float],
    changes: Sequence[Change],
    *,
    recorded: Graph | None = None,
    progress: Progress = silent,
) -> ScheduleCase:
    """``recorded`` is the graph that gains are counted from, where it differs from ``graph``:
    orders replace stock DDP's buckets, which a run that followed a plan does not have."""
    ledger = Ledger()
    costs: Costs = fit_network(graph, calibration)
    during_compute = extra_during_compute(
        graph, piece_costs(costs, calibration, Ledger()), calibration
    )
    recorded = graph if recorded is None else recorded
    is_same = recorded is graph
    if not is_same:
        # Messages of pieces are measurements of the network, too.
        costs = fit_network(recorded, calibration) | costs
    measured_ns = measured_step_ns(recorded)
    run = representation_of(replay_graph(recorded, progress=progress))
    scene = Scene(graph=graph, costs=costs, calibration=tuple(calibration))
    own = scene if is_same else replace(scene, graph=recorded)
    for change in changes:
        scene = change.apply(scene).scene
        own = scene if is_same else change.apply(own).scene
        measured_ns = None
    graph, costs, recorded = scene.graph, scene.costs, own.graph
    known = piece_costs(costs, calibration, ledger)
    before = replay_graph(graph, progress=progress)
    baseline = before if is_same else replay_graph(recorded, progress=progress)
    p2p = fit_p2p(costs, calibration) if graph.num_ranks == 2 else None
    problem, stock = problems_of(before, known, needs, during_compute, p2p, ledger)
    scheduled = ScheduledGraph(
        scene=scene,
        problem=problem,
        stock=stock,
        costs=known,
        shared_costs=piece_costs(costs, calibration, Ledger(), at_once=GLOO_THREADS),
        during_compute=during_compute,
        p2p=p2p,
        needs=needs,
    )
    with progress("computing the lower bound of any order"):
        bound_ns = scheduled.bound_ns
    return ScheduleCase(
        problem=problem,
        stock=stock,
        num_ranks=graph.num_ranks,
        baseline=RECORDED,
        baseline_ns=baseline.step_ns,
        baseline_order=recorded_order(graph, stock),
        bound_ns=bound_ns,
        noise=noise_of(run),
        run=run,
        measured_ns=measured_ns,
        scheduled=scheduled,
        ledger=ledger,
    )


def noise_of(run: Representation | None) -> float:
    """Relative uncertainty of gains. Both sides of a gain replay the same windows, so differences
    between runs cancel and only the error of the windows' level remains."""
    return (
        max(QUIET_NOISE, SIGMAS_OF_90_PCT * run.recorded.error) if run is not None else QUIET_NOISE
    )
