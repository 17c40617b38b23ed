"""A replay of folded ranks equals a replay of all ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from augury.build.collectives.ports import PortKind
from augury.build.pipeline_order import PipelineSchedule
from augury.build.synthetic.layers import ModelSize, conv_layers, uniform_layers
from augury.build.synthetic.training_run import NOMINAL_CLUSTER, SCHEMES, SyntheticJob, synthesize
from augury.core.cluster.cluster import Cluster
from augury.core.enums import MemoryKind
from augury.core.errors import DeadlockError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import RATE_ONE, Graph
from augury.core.timeline import Timeline
from augury.replay.fold import fold
from augury.replay.run import replay
from tests.engines.strategies import COARSE, graphs, symmetric_graphs

from .path_truth import assert_true_of


def assert_folds_exactly(graph: Graph) -> Timeline | None:
    whole, folded = (_replayed(graph, fold=fold) for fold in (False, True))
    if isinstance(whole, tuple) or isinstance(folded, tuple):
        assert folded == whole
        return None
    assert folded.graph is graph
    assert folded.start_ns.tolist() == whole.start_ns.tolist()
    assert folded.end_ns.tolist() == whole.end_ns.tolist()
    assert folded.step_ns == whole.step_ns
    assert folded.rank_step_ns == whole.rank_step_ns
    assert folded.rank_steps == whole.rank_steps
    assert folded.peak_memory == whole.peak_memory
    assert folded.utilization == whole.utilization
    assert folded.ledger == whole.ledger
    # Where several ranks were the last to arrive, the path may lead through another of them.
    assert folded.critical_path.dur_ns.sum() == whole.critical_path.dur_ns.sum()
    assert folded.critical_path.start_ns[0] == whole.critical_path.start_ns[0]
    assert_true_of(whole)
    assert_true_of(folded)
    return folded


def _replayed(graph: Graph, *, fold: bool) -> Timeline | tuple[str, ...]:
    """Returns the Timeline, or the cycle of a deadlock."""
    try:
        return replay(graph, fold=fold)
    except DeadlockError as error:
        return error.cycle


# -- random symmetric graphs ---------------------------------------------------------------

some = settings(max_examples=60)


@some
@given(symmetric_graphs())
def test_identical_ranks(graph: Graph):
    timeline = assert_folds_exactly(graph)
    assert timeline is not None
    assert timeline.num_simulated_ops * graph.num_ranks == graph.num_ops


@some
@given(symmetric_graphs(extras=True))
def test_identical_ranks_in_a_steady_state(graph: Graph):
    timeline = assert_folds_exactly(graph)
    assert timeline is None or timeline.num_simulated_ops % (graph.num_ops / graph.num_ranks) == 0


@some
@given(symmetric_graphs(max_classes=3, extras=True))
def test_a_few_kinds_of_ranks(graph: Graph):
    assert_folds_exactly(graph)


@some
@given(symmetric_graphs(max_classes=3, works=COARSE, shared=True))
def test_with_links(graph: Graph):
    assert_folds_exactly(graph)


@some
@given(symmetric_graphs(max_classes=2, shared=True, interference=True, extras=True))
def test_with_interference_in_a_steady_state(graph: Graph):
    assert_folds_exactly(graph)


@some
@given(graphs(gangs=True, servers=True, extras=True))
def test_any_graph(graph: Graph):
    assert_folds_exactly(graph)


# -- synthetic jobs -------------------------------------------------------------------------

SMALL = ModelSize(num_layers=5)
WIDE = Cluster.of_hosts(
    num_hosts=8, ranks_per_host=1, intra=NOMINAL_CLUSTER.levels[0], inter=NOMINAL_CLUSTER.levels[1]
)
EXPANDED = ("ring", "tree", "two-level")


def _job(**options: object) -> SyntheticJob:
    return SyntheticJob(layers=conv_layers(SMALL), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("ports", PortKind)
@pytest.mark.parametrize("has_barrier", [True, False])
@pytest.mark.parametrize("algorithm", SCHEMES)
def test_every_scheme(algorithm: str, has_barrier: bool, ports: PortKind):
    job = _job(algorithm=algorithm, has_barrier=has_barrier, ports=ports)
    timeline = assert_folds_exactly(synthesize(job))
    assert timeline is not None


@pytest.mark.parametrize("algorithm", ["gang", "ring"])
def test_ranks_that_do_the_same_are_simulated_once(algorithm: str):
    for cluster, classes in (
        (WIDE, [0] * 8),
        # A ring's ranks differ in how far it is to the next host.
        (NOMINAL_CLUSTER, [0, 1, 2, 3] * 2 if algorithm == "ring" else [0] * 8),
    ):
        graph = synthesize(_job(algorithm=algorithm, cluster=cluster))
        folded = fold(graph)
        assert folded is not None
        assert folded.class_of_rank.tolist() == classes
        assert folded.graph.num_ops * 8 == graph.num_ops * folded.num_classes
        whole = replay(graph, fold=False)
        assert replay(graph).num_simulated_ops * 8 == whole.num_simulated_ops * folded.num_classes


@pytest.mark.parametrize("algorithm", [*EXPANDED, "gang", "parameter-server"])
@pytest.mark.parametrize("has_barrier", [True, False])
def test_one_straggler(algorithm: str, has_barrier: bool):
    job = _job(algorithm=algorithm, cluster=WIDE, has_barrier=has_barrier, stragglers=((3, 1.5),))
    timeline = assert_folds_exactly(synthesize(job))
    assert timeline is not None


@pytest.mark.parametrize("algorithm", ["gang", "ring", "parameter-server"])
def test_several_kinds_of_ranks(algorithm: str):
    stragglers = ((1, 1.25), (3, 1.25), (5, 1.25), (7, 2.0))
    graph = synthesize(_job(algorithm=algorithm, cluster=WIDE, stragglers=stragglers))
    assert_folds_exactly(graph)
    if algorithm == "gang":
        folded = fold(graph)
        assert folded is not None
        assert folded.class_of_rank.tolist() == [0, 1, 0, 1, 0, 1, 0, 2]


@pytest.mark.parametrize("schedule", [PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B])
@pytest.mark.parametrize("algorithm", ["gang", "ring"])
@pytest.mark.parametrize("has_barrier", [True, False])
def test_pipelines(schedule: PipelineSchedule, algorithm: str, has_barrier: bool):
    job = _job(
        algorithm=algorithm,
        cluster=WIDE,
        num_stages=4,
        num_micro_batches=6,
        schedule=schedule,
        has_barrier=has_barrier,
    )
    graph = synthesize(replace(job, layers=uniform_layers(replace(SMALL, num_layers=8))))
    timeline = assert_folds_exactly(graph)
    assert timeline is not None
    if algorithm == "gang":
        folded = fold(graph)
        assert folded is not None
        assert folded.class_of_rank.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("algorithm", ["gang", "two-level", "parameter-server"])
def test_several_recorded_steps(algorithm: str):
    job = _job(algorithm=algorithm, num_steps=2, compute_rate=0.8)
    assert_folds_exactly(synthesize(job))


# -- differences of ranks ------------------------------------------------------------------


class Ranks:
    """Identical ranks with one operation each on a stream of their own, and additions."""

    def __init__(self, num_ranks: int) -> None:
        self.builder = GraphBuilder()
        self.ranks = [self.builder.rank() for _ in range(num_ranks)]
        self.streams = [self.builder.resource("stream", rank=rank) for rank in self.ranks]
        self.ops = [self.op(rank) for rank in self.ranks]

    def op(self, rank: int, *after: int, work_ns: int = 10) -> int:
        return self.builder.op(
            "op", rank=rank, resource=self.streams[rank], work_ns=work_ns, after=after
        )

    def classes(self) -> list[int]:
        graph = self.builder.build()
        assert_folds_exactly(graph)
        folded = fold(graph)
        return list(self.ranks) if folded is None else folded.class_of_rank.tolist()


def test_the_same_is_alike():
    assert Ranks(3).classes() == [0, 0, 0]


def test_users_of_what_is_everybodys_are_told_apart():
    ranks = Ranks(5)
    switch = ranks.builder.shared_resource("switch")
    for rank in (1, 3):
        ranks.builder.op("send", rank=rank, resource=switch, work_ns=10)
    assert ranks.classes() == [0, 1, 0, 2, 0]


def test_a_queue_that_is_everybodys_is_served_in_the_order_of_ids():
    ranks = Ranks(3)
    lock = ranks.builder.resource("lock")
    for rank in ranks.ranks:
        ranks.builder.op("write", rank=rank, resource=lock, work_ns=5, after=[ranks.ops[rank]])
    timeline = replay(ranks.builder.build())
    assert timeline.end_ns.tolist() == [10, 10, 10, 15, 20, 25]
    assert ranks.classes() == [0, 1, 2]


def test_interference_across_ranks_tells_both_apart():
    ranks = Ranks(5)
    ranks.builder.interfere(victim=ranks.streams[1], aggressor=ranks.streams[3], rate=0.5)
    assert ranks.classes() == [0, 1, 0, 2, 0]


def test_interference_by_what_is_everybodys_tells_its_victim_apart():
    ranks = Ranks(4)
    switch = ranks.builder.shared_resource("switch")
    ranks.builder.interfere(victim=ranks.streams[2], aggressor=switch, rate=0.5)
    assert ranks.classes() == [0, 0, 1, 0]


def test_interference_within_each_rank_leaves_them_alike():
    ranks = Ranks(4)
    for rank in ranks.ranks:
        comm = ranks.builder.resource("comm", rank=rank)
        ranks.builder.interfere(victim=ranks.streams[rank], aggressor=comm, rate=0.5)
        ranks.builder.op("send", rank=rank, resource=comm, work_ns=4)
    assert ranks.classes() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "buffer",
    [
        {"size_bytes": 8},
        {"kind": MemoryKind.GRADIENT},
        {"later": True},
        {"taken_by": -1},
        {"given_by": -1},
        {"layer": "other"},
    ],
    ids=lambda buffer: next(iter(buffer)),
)
def test_memory_alone_tells_apart(buffer: dict[str, object]):
    ranks = Ranks(3)
    for rank, op in zip(ranks.ranks, ranks.ops, strict=True):
        same = {"size_bytes": 7, "taken_by": op, "given_by": op, "layer": "l"}
        ranks.builder.buffer(rank=rank, **same | (buffer if rank == 1 else {}))  # type: ignore[arg-type]
    assert ranks.classes() == [0, 1, 0]


def test_neighbours_tell_apart():
    # A rank with a slow neighbour differs from one with a fast neighbour, though both do the same.
    ranks = Ranks(6)
    ranks.op(0, work_ns=90)
    for sender in (0, 2, 4):
        ranks.op(sender + 1, ranks.ops[sender])
    assert ranks.classes() == [0, 1, 2, 3, 2, 3]


def test_neighbours_in_the_window_before_tell_apart():
    ranks = Ranks(6)
    slow = ranks.op(0, ranks.ops[0], work_ns=90)
    for sender, last in ((0, slow), (2, ranks.ops[2]), (4, ranks.ops[4])):
        ranks.builder.carry(last, ranks.ops[sender])
        ranks.builder.carry(last, ranks.ops[sender + 1])
    assert ranks.classes() == [0, 1, 2, 3, 2, 3]


def test_company_in_a_gang_tells_apart():
    ranks = Ranks(6)
    ranks.op(0, work_ns=90)
    for first in (0, 2, 4):
        gang = ranks.builder.gang()
        for rank in (first, first + 1):
            ranks.builder.op("reduce", rank=rank, work_ns=5, gang=gang, after=[ranks.ops[rank]])
    assert ranks.classes() == [0, 1, 2, 2, 2, 2]


def test_the_path_leads_through_ranks_that_are_joined():
    # Three pairs alike, and in each the receiver waits for its own sender.
    ranks = Ranks(6)
    received = [ranks.op(sender + 1, ranks.ops[sender]) for sender in (0, 2, 4)]
    timeline = replay(ranks.builder.build())
    assert timeline.num_simulated_ops == 3
    sent, got = timeline.critical_path.op.tolist()
    assert (sent, got) in zip((0, 2, 4), received, strict=True)


def test_the_path_leads_back_into_the_window_before():
    # What happens between two steps belongs to none: the step after waits for it.
    ranks = Ranks(3)
    saved = []
    for rank, op in enumerate(ranks.ops):
        saved.append(ranks.builder.op("save", rank=rank, work_ns=5, step=-1, after=[op]))
        ranks.builder.carry(saved[-1], op)
    timeline = assert_folds_exactly(ranks.builder.build())
    assert timeline is not None
    assert timeline.step_ns == 15
    before, step = timeline.critical_path.op.tolist()
    assert (before, step) in zip(saved, ranks.ops, strict=True)
    assert timeline.critical_path.dur_ns.tolist() == [5, 10]


def test_a_rule_is_not_taken_for_a_resource():
    ranks = Ranks(2)
    comms = [ranks.builder.resource("comm", rank=rank) for rank in ranks.ranks]
    for rank, comm in zip(ranks.ranks, comms, strict=True):
        ranks.builder.op("send", rank=rank, resource=comm, work_ns=10)
    ranks.builder.shared_resource("unused", rank=0, width=1, capacity=0.5)
    ranks.builder.interfere(victim=comms[1], aggressor=ranks.streams[1], rate=0.5)
    assert ranks.classes() == [0, 1]


def test_an_operation_is_not_taken_for_resources():
    b = GraphBuilder()
    streams = [b.resource("stream", rank=b.rank()) for _ in range(2)]
    for capacity in (7, 3):
        b.shared_resource("unused", rank=0, width=1, capacity=capacity / RATE_ONE)
    b.op("long", rank=1, resource=streams[1], work_ns=1 << 32, priority=7, step=1)
    for rank in range(2):
        b.op("short", rank=rank, resource=streams[rank], work_ns=10, step=1)
    graph = b.build()
    assert fold(graph) is None
    assert_folds_exactly(graph)
