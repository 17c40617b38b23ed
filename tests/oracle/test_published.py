"""Accuracy of the oracle on the published figure."""

from __future__ import annotations

import numpy as np
import pytest

from augury.core.cluster.cluster_file import find_cluster
from augury.core.cluster.device import Precision
from augury.oracle.fitting.comparison import Compared, compare, project, rank
from augury.oracle.fitting.corrections import BARE, Constants
from augury.oracle.fitting.fit_corrections import fit
from augury.oracle.fitting.measured_table import every_other, read_table
from augury.oracle.fitting.published import PUBLISHED
from augury.oracle.layer_costs import LayerWork
from augury.oracle.strategy import Options
from tests.oracle.published import ABCI, FIGURE, resnet50_224, rows, works


def _accuracy(compared: list[Compared], strategy: str | None = None) -> float:
    return float(
        np.mean([one.accuracy_pct for one in compared if strategy in (None, one.row.strategy)])
    )


@pytest.fixture(scope="module")
def halves() -> list[Constants]:
    return [fit(every_other(rows("ResNet50"), start), works(), ABCI) for start in (0, 1)]


def test_a_sample_takes_what_was_published():
    assert works()["ResNet50"].sample_s == pytest.approx(3.1195e-3, rel=0.02)
    assert works()["VGG16"].sample_s == pytest.approx(8.2456e-3, rel=0.02)


@pytest.mark.parametrize(
    ("device", "precision", "images_per_s", "within"),
    [
        ("V100", Precision.FP32, 367, 0.05),
        ("V100", Precision.FP16, 1200, 0.15),
        ("A100", Precision.TF32, 938, 0.15),
        ("A100", Precision.FP16, 2470, 0.15),
    ],
)
def test_one_device_makes_about_as_many_images_a_second_as_published(
    device: str, precision: Precision, images_per_s: float, within: float
):
    """NVIDIA's own figures of ResNet-50 v1.5 at 224 x 224."""
    work = LayerWork.of(resnet50_224(), find_cluster(device).described_device, precision)
    assert 1 / work.sample_s == pytest.approx(images_per_s, rel=within)


def test_bare_equations_project_data_parallelism_as_published():
    found = {(one.model, one.strategy): one for one in project(rows(), works(), ABCI)}
    for model in ("ResNet50", "VGG16"):
        assert abs(found[model, "data"].max_error_pct) < 10
        assert found[model, "data"].num_rows == 7


@pytest.mark.parametrize("start", [0, 1])
def test_constants_of_half_of_the_scales_predict_the_other_half(
    halves: list[Constants], start: int
):
    other = compare(every_other(rows("ResNet50"), 1 - start), works(), ABCI, halves[start])
    assert _accuracy(other) >= 85
    assert _accuracy(other, "data") >= 94


def test_constants_of_resnet_predict_vgg(halves: list[Constants]):
    for constants in (*halves, PUBLISHED):
        assert _accuracy(compare(rows("VGG16"), works(), ABCI, constants)) >= 88


def test_the_measured_ranking_is_predicted_at_every_scale(halves: list[Constants]):
    for constants in (halves[0], PUBLISHED):
        rankings = rank(compare(rows("ResNet50"), works(), ABCI, constants))
        assert [one.devices for one in rankings] == [4, 8, 16, 32, 64, 128, 256, 512, 1024]
        for one in rankings:
            assert one.num_right == one.num_pairs, one
            assert one.regret_pct == 0


def test_bare_equations_are_much_worse():
    bare = compare(rows("ResNet50"), works(), ABCI, BARE, Options(is_bare=True))
    assert _accuracy(bare) < 70


def test_the_shipped_constants_are_those_of_the_figure():
    again = fit([row for row in read_table(FIGURE) if row.model == "ResNet50"], works(), ABCI)
    shipped = compare(rows("ResNet50"), works(), ABCI, PUBLISHED)
    anew = compare(rows("ResNet50"), works(), ABCI, again)
    for a, b in zip(shipped, anew, strict=True):
        assert a.predicted_step_s == pytest.approx(b.predicted_step_s, rel=0.01)
