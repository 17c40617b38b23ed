"""Paths of modules of a recorded run are found in a program."""

from __future__ import annotations

import pytest

from augury.core.module_paths import clean_path, common_prefix


def test_parts_of_wrappers_are_left_out() -> None:
    assert clean_path("_orig_mod.layers.0._checkpoint_wrapped_module.linear") == "layers.0.linear"


@pytest.mark.parametrize(
    ("recorded", "prefix"),
    [
        (["layers.0", "head"], ""),
        (["model.net.layers.0", "model.net.head"], "model.net."),
        (["model.layers.0", "head"], None),
        (["layers.2"], None),
        (["mylayers.0"], None),
        ([], None),
    ],
)
def test_recorded_paths_share_one_prefix(recorded: list[str], prefix: str | None) -> None:
    assert common_prefix(["layers.0", "layers.1", "head"], recorded) == prefix
