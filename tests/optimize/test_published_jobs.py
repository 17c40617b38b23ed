"""The published kinds of jobs that benchmarks search over."""

from __future__ import annotations

import pytest
from benchmarks.optimize.cases import COLUMNS, case_row, table
from benchmarks.optimize.job import Job
from benchmarks.optimize.job_graph import job_graph, planned_run
from benchmarks.optimize.job_space import JobSpace, by_size_and_need, by_size_or_need
from benchmarks.optimize.networks import Network, elementwise, matrix, network, network_of
from benchmarks.optimize.small import small_row

from augury.core.plan.plan import PlanSection
from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Scheme
from augury.optimize.scene_space import SceneSpace
from augury.optimize.search import SearchOptions, search
from augury.predict.plan_prediction import with_sections
from augury.replay.run import replay
from augury.schedule.evaluate import step_ns

MEGA = 1_000_000


def three_layers() -> Network:
    """Two layers in one block, and a classifier."""
    kernels = (matrix(50 * MEGA, 100_000), elementwise(100_000), elementwise(100_000))
    return network_of(
        "three",
        [
            ("block.0", (4 * MEGA,), kernels),
            ("block.1", (4 * MEGA, 1000), kernels),
            ("head", (MEGA,), kernels[:1]),
        ],
        batch=32,
    )


def job_of(scheme: Scheme, gbit_per_s: float = 25.0, *, num_ranks: int = 4) -> Job:
    return Job(network=three_layers(), scheme=scheme, gbit_per_s=gbit_per_s, num_ranks=num_ranks)


def test_networks_have_published_sizes_and_times() -> None:
    """25.6 million parameters, and some 300 to 400 images a second on a V100 in fp32."""
    resnet = network("resnet50")
    assert resnet.size_bytes / 4 == pytest.approx(25.6e6, rel=0.01)
    took_ns = sum(layer.forward_ns + layer.backward_ns for layer in resnet.layers)
    assert 32e9 / took_ns == pytest.approx(350, rel=0.15)
    assert network("vgg16").size_bytes / 4 == pytest.approx(138.4e6, rel=0.01)
    assert network("bert-base").size_bytes / 4 == pytest.approx(109.5e6, rel=0.01)


def test_compiled_modules_save_time_and_release_gradients_together() -> None:
    job = job_of(Scheme.ALL_REDUCE)
    alone, compiled = job.problem(), job.problem([range(2)])
    assert compiled.compute_ns < alone.compute_ns
    assert len({one.release_ns for one in alone.gradients}) == 3
    first, second, bias, head = compiled.gradients
    assert first.release_ns == second.release_ns == bias.release_ns == compiled.backward_ns
    assert head.release_ns < second.release_ns
    assert second.need_ns == 0 < alone.gradients[1].need_ns


@pytest.mark.parametrize("scheme", Scheme)
def test_orders_of_a_space_are_valid(scheme: Scheme) -> None:
    job = job_of(scheme)
    for compiled in ([], [range(2)], [range(3)]):
        problem = job.problem(compiled)
        verify_order(job.default_order(problem), problem)
        for order in by_size_and_need(job, problem):
            verify_order(order, problem)


@pytest.mark.parametrize("scheme", Scheme)
def test_small_messages_and_large_buckets_are_both_searched(scheme: Scheme) -> None:
    job = job_of(scheme)
    sizes = [len(order.pieces) for order in by_size_or_need(job, job.problem())]
    assert min(sizes) <= 2
    assert max(sizes) > 20


@pytest.mark.parametrize("scheme", Scheme)
def test_a_case_is_replayed_as_it_was_evaluated(scheme: Scheme) -> None:
    row = case_row(job_of(scheme), budget_s=60.0)
    assert set(row.steps_ns) == set(COLUMNS)
    assert row.replayed_ns == {name: row.steps_ns[name] for name in row.replayed_ns}
    assert row.steps_ns["jointly"] <= 1.001 * min(row.steps_ns.values())
    assert row.steps_ns["jointly"] < row.steps_ns["default"]
    assert len({line.count("|") for line in list(table([row]))[:3]}) == 1


def test_modules_within_chosen_ones_are_excluded() -> None:
    space = JobSpace(job_of(Scheme.ALL_REDUCE))
    by_name = {decision.name: place for place, decision in enumerate(space.decisions)}
    block = space.decisions[by_name["block"]]
    assert by_name["block.0"] in block.excludes
    assert by_name["the whole network"] in block.excludes
    candidate = [0] * len(space.decisions)
    candidate[by_name["block"]] = 1
    assert space.compiled_modules(tuple(candidate)) == (range(2),)


def test_the_search_finds_the_optimum_of_a_small_job() -> None:
    row = small_row(8)
    assert row.evaluated < row.candidates
    assert row.optimum_ns <= row.found_ns <= 1.01 * row.optimum_ns


def test_the_graph_of_a_job_replays_as_its_problem() -> None:
    job = job_of(Scheme.ALL_REDUCE)
    problem = job.problem()
    expected_ns = step_ns(problem, job.default_order(problem))
    assert replay(job_graph(job)).step_ns == pytest.approx(expected_ns, rel=1e-4)


def test_the_recorded_run_of_a_job_is_optimized() -> None:
    """Compiling the block saves what the network says, or another order of gradients more: pieces
    exclude compiled modules."""
    job = job_of(Scheme.ALL_REDUCE, 100.0)
    run = planned_run(job)
    options = SearchOptions(budget_s=60.0)
    space = SceneSpace(run, [PlanSection.FUSION, PlanSection.COMMUNICATION], options=options)
    found = search(space, options=options)
    best_ns = found.evaluated[found.best].step_ns
    compiled_ns = min(
        one.step_ns
        for candidate, one in found.evaluated.items()
        if PlanSection.FUSION in space.sections_of(candidate)
    )
    assert best_ns <= compiled_ns < 0.99 * run.baseline.step_ns
    both = JobSpace(job, compiler=by_size_and_need)
    bound_ns = search(both, options=SearchOptions(screen=False)).evaluated
    assert min(one.step_ns for one in bound_ns.values()) <= 1.001 * best_ns


def test_compiled_modules_with_buckets_are_evaluated_as_on_a_rewritten_graph() -> None:
    run = planned_run(job_of(Scheme.ALL_REDUCE, 10.0))
    sections = [PlanSection.FUSION, PlanSection.COMMUNICATION]
    space = SceneSpace(run, sections)
    found = search(space)
    has_buckets = [one for one in found.evaluated if one[-2]]
    assert any(any(one[:-2]) for one in has_buckets)
    for candidate in has_buckets:
        compiled = space.order_of(candidate)
        assert compiled is not None
        scene = with_sections(run.scene, space.sections_of(candidate))
        changed = run.with_order(scene, compiled.order.order, is_stock=compiled.is_stock)
        assert found.evaluated[candidate].step_ns == replay(changed.scene.graph).step_ns
