"""One call does what ``augury oracle`` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.core.errors import InfeasibleError, UsageError
from augury.oracle.model_reader.model_file import save_model_file
from augury.oracle.predict_strategies import predict_strategies
from augury.oracle.sweep_result import require_feasible
from tests.oracle.small import CLUSTER, MODEL


def test_a_model_and_a_cluster_give_a_result():
    result = predict_strategies(MODEL, CLUSTER, devices=[4, 8], global_batch=64).result
    assert {row.devices for row in result.rows} == {4, 8}
    assert result.recommended is not None
    require_feasible(result)


def test_a_model_file_is_named_by_text_or_by_path(tmp_path: Path):
    file = tmp_path / "model.json"
    save_model_file(MODEL, file)
    expected = predict_strategies(MODEL, CLUSTER, devices="4", global_batch=64).result
    for name in (file, str(file)):
        found = predict_strategies(name, CLUSTER, devices="4", global_batch=64)
        assert found.result == expected


def test_names_of_strategies_as_text_or_as_a_list():
    for names in ("data,zero3", ["data", "zero3"]):
        found = predict_strategies(MODEL, CLUSTER, devices="4", global_batch=64, strategies=names)
        assert [row.strategy for row in found.result.rows] == ["data", "zero3"]


def test_a_graph_is_of_one_configuration():
    asked = {"devices": "4", "global_batch": 64, "strategies": "data"}
    graph = predict_strategies(MODEL, CLUSTER, **asked).graph()
    assert graph.num_ranks == 4
    several = predict_strategies(MODEL, CLUSTER, **{**asked, "devices": "4,8"})
    with pytest.raises(UsageError, match="one configuration"):
        several.graph()


def test_infeasible_results_are_refused_with_the_constraint():
    result = predict_strategies(
        MODEL, CLUSTER, devices="4", global_batch=64, memory_limit_bytes=1
    ).result
    assert result.recommended is None
    with pytest.raises(InfeasibleError, match=r"needs .* of 1 B") as refused:
        require_feasible(result)
    assert refused.value.result is result
