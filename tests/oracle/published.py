"""The published figure and its models, loaded once for all tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from augury.core.cluster.cluster_file import find_cluster
from augury.core.cluster.device import Precision
from augury.core.model import Model
from augury.oracle.fitting.comparison import works_for
from augury.oracle.fitting.measured_table import Row, read_table
from augury.oracle.layer_costs import LayerWork

ABCI = find_cluster("abci")
FIGURE = Path(__file__).parent / "data" / "paradl_fig2.csv"


@cache
def rows(model: str | None = None) -> list[Row]:
    return [row for row in read_table(FIGURE) if model in (None, row.model)]


@cache
def works() -> dict[str, LayerWork]:
    pytest.importorskip("torch")
    from augury.oracle.model_reader.read_model import load_model

    return works_for(rows(), load_model, ABCI, Precision.FP32)


@cache
def resnet50_224() -> Model:
    pytest.importorskip("torch")
    from augury.oracle.model_reader.read_model import load_model

    return load_model("resnet50", input_shapes=["3x224x224"])
