"""Choice of the engine, with and without the compiled kernel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

import augury
from augury.core.errors import DeadlockError, UsageError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.replay import critical_path, engine, fold, kernel, reference
from augury.replay.engine import find_engine, is_native_built
from augury.replay.run import replay
from tests.engines.strategies import symmetric_graphs


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an installation without a compiler."""
    for module in (engine, fold, critical_path):
        monkeypatch.setattr(module, "is_native_built", lambda: False)


def _pair() -> Graph:
    b = GraphBuilder()
    for rank in (b.rank(), b.rank()):
        b.op("op", rank=rank, work_ns=7)
    return b.build()


def test_the_kernel_is_chosen_where_it_was_built():
    assert is_native_built()
    assert find_engine() is find_engine("native") is kernel.simulate
    assert find_engine("reference") is reference.simulate


@pytest.mark.usefixtures("not_built")
def test_the_reference_stands_in_for_it():
    assert find_engine() is find_engine("reference") is reference.simulate
    timeline = replay(_pair())
    assert timeline.step_ns == 7
    assert timeline.num_simulated_ops == 2


@pytest.mark.usefixtures("not_built")
def test_asking_for_a_kernel_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="native engine") as caught:
        replay(_pair(), engine="native")
    assert caught.value.exit_code == 2
    assert "reference" in caught.value.remedy


def test_replays_agree_with_and_without_it():
    @settings(max_examples=25)
    @given(symmetric_graphs(max_classes=2, shared=True, extras=True))
    def agree(graph: Graph) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for module in (engine, fold, critical_path):
                patch.setattr(module, "is_native_built", lambda: False)
            plainly = _told(graph)
        assert plainly == _told(graph)

    agree()


def _told(graph: Graph) -> tuple[object, ...]:
    """Returns all parts of a Timeline, or the cycle of a deadlock."""
    try:
        timeline = replay(graph, fold=False)
    except DeadlockError as error:
        return error.cycle
    return (
        timeline.start_ns.tolist(),
        timeline.end_ns.tolist(),
        timeline.critical_path,
        timeline.utilization,
        timeline.step_ns,
        timeline.rank_step_ns,
        timeline.peak_memory,
    )


def test_the_package_is_the_function():
    # Whether it was looked up before or after its modules were imported.
    assert augury.replay(_pair()).step_ns == 7
    assert augury.replay(_pair(), engine="reference", fold=False).step_ns == 7
