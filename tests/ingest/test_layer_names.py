"""Ranges that state the layer they are about."""

from __future__ import annotations

import pytest

from augury.core.vocabulary.torch import MODULE_RANGE
from augury.ingest.vocabulary.torch import layer_of_range


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        (MODULE_RANGE + "encoder.0", "encoder.0"),
        ("FSDP::post_backward_reduce (blocks.2)", "blocks.2"),
        ("FSDP::backward_prefetch for blocks.1", "blocks.1"),
        ("FSDP::all_gather (9)", "9"),
        ("FSDP::root_post_backward_callback", ""),
        ("FSDP::post_backward_reduce", ""),
        ("aten::mm", ""),
        ("FSDP::all_gather (" + "a" * 10_000, ""),
    ],
)
def test_layers_of_ranges(name: str, layer: str):
    assert layer_of_range(name) == layer
