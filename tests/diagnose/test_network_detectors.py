"""Slow links, losses and servers."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

import augury
from augury.build.collectives.placement import Placement
from augury.build.synthetic.job_options import choose_cluster, make_synthetic_job
from augury.build.synthetic.training_run import synthesize
from augury.core.results.diagnosis import Diagnosis
from augury.core.wire import Wire
from augury.costs.links import Links
from augury.diagnose.detectors.network.retransmissions import lossy_links
from augury.diagnose.detectors.network.slow_links import slowest_path
from augury.ingest.open_run import open_run
from augury.ingest.wire.read_wire import read_wire
from augury.passes.removals.level_links import levelled
from tests.golden.expected import RUNS


def links(table: list[list[float]]) -> Links:
    ns_per_byte = np.array(table)
    return Links.of(ns_per_byte, np.ones_like(ns_per_byte))


def test_one_slow_direction_between_two_ranks_is_named() -> None:
    found = slowest_path(links([[0, 2], [8, 0]]))
    assert found is not None
    assert (found.src, found.dst, found.ratio) == (1, 0, 4)


@pytest.mark.parametrize(("out", "into"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("num_ranks", [3, 4, 8])
def test_the_slow_link_of_one_rank_is_named_with_its_direction(
    num_ranks: int, out: bool, into: bool
) -> None:
    table = np.full((num_ranks, num_ranks), 2.0)
    if out:
        table[2, :] = 6
    if into:
        table[:, 2] = 6
    found = slowest_path(links(table.tolist()))
    assert found is not None
    assert (found.src, found.dst) == (2 if out else None, 2 if into else None)
    assert found.ratio == pytest.approx(3)
    assert slowest_path(levelled(links(table.tolist()))) is None


def test_equal_links_are_not_slow() -> None:
    assert slowest_path(links([[0, 2, 2.2], [2.1, 0, 2], [2, 2.3, 0]])) is None
    assert slowest_path(links([[0, 2], [2.4, 0]])) is None


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Wire:
    run = tmp_path_factory.mktemp("wire") / "run"
    shutil.copytree(RUNS / "mlp-2", run)  # reading leaves files in a run's folder
    return read_wire(run, open_run(run))


def test_retransmissions_are_counted_by_link(wire: Wire) -> None:
    assert lossy_links(wire) == []
    rows = wire.connections
    again = np.where(rows.sent_a > 100_000, rows.sent_a // 14_480, 0)
    lossy = replace(wire, connections=type(rows)(**dict(rows.columns()) | {"retransmits_a": again}))
    found = lossy_links(lossy)
    assert found
    assert all(0.05 < link.loss <= 0.1 for link in found)


def served(placement: Placement) -> Diagnosis:
    job = make_synthetic_job(
        cluster=choose_cluster(ranks=4),
        scheme="ps",
        servers=3,
        partition="1GB",
        model="transformer",
        layers=7,
    )
    return augury.open(synthesize(replace(job, placement=placement))).diagnose().result


def test_a_server_with_most_parameters_is_named() -> None:
    found = served(Placement.ROUND_ROBIN)
    assert found.findings[0].kind == "server-imbalance"
    assert found.findings[0].where.hosts[0].startswith("server")
    assert "server-imbalance" not in served(Placement.BALANCED).not_examined
