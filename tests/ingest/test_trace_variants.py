"""Damage to a set of traces leaves the prediction of its complete steps where it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ingest.trace_variants import Variant, variants
from tests.ingest.variant_predictions import moved_pct, predict_set, predict_variant

TRACES = os.environ.get("AUGURY_TRACES")
pytestmark = pytest.mark.skipif(
    not TRACES, reason="AUGURY_TRACES does not name the folder of traces"
)

ALL = variants()
MAX_MOVED_PCT = 2.0


def check(variant: Variant, out: Path) -> None:
    traces = Path(TRACES or "")
    found = predict_variant(variant, traces, out)
    moved = moved_pct(found, predict_set(traces / variant.source))
    assert max(map(abs, moved)) <= MAX_MOVED_PCT, (variant.label, moved)


@pytest.mark.parametrize("variant", ALL[::10], ids=lambda variant: variant.label)
def test_the_prediction_of_some_variants_stays(variant: Variant, tmp_path: Path):
    check(variant, tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.label)
def test_the_prediction_of_all_variants_stays(variant: Variant, tmp_path: Path):
    check(variant, tmp_path)


def test_there_are_fifty_variants_of_all_sets():
    assert len(ALL) == len({variant.label for variant in ALL}) == 50
    assert len({variant.source for variant in ALL}) == 6
