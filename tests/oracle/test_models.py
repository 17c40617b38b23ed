from __future__ import annotations

import pytest

from augury.core.errors import InputError
from augury.core.model import LayerKind, Model
from augury.oracle.model_reader.read_model import load_model
from augury.oracle.models.registry import BUILT_IN, built_in

pytest.importorskip("torch")

# As published, and as the modules of torchvision have them.
PARAMETERS = {"resnet50": 25_557_032, "resnet152": 60_192_808, "vgg16": 138_357_544}
# Multiplications and additions of one sample of 224 x 224, as torchvision states them in its tables
# (those count a multiplication with its addition as one).
GFLOPS = {"resnet50": 4.09, "resnet152": 11.51, "vgg16": 15.47}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    small = {"cosmoflow": ["4x128x128x128"]}
    return {
        model.name: load_model(model.name, input_shapes=small.get(model.name, ["3x224x224"]))
        for model in BUILT_IN
    }


@pytest.mark.parametrize("name", PARAMETERS)
def test_built_in_models_match_the_published_ones(models: dict[str, Model], name: str):
    assert models[name].num_parameters == PARAMETERS[name]
    flops = sum(layer.forward_flops for layer in models[name].layers)
    assert flops / 2e9 == pytest.approx(GFLOPS[name], rel=0.01)


def test_cosmoflow_matches_mlperf(models: dict[str, Model]):
    convolutions = [
        layer for layer in models["cosmoflow"].layers if layer.kind is LayerKind.CONVOLUTION
    ]
    assert [layer.filters for layer in convolutions] == [32, 64, 128, 256, 512]
    assert all(layer.kernel == (3, 3, 3) for layer in convolutions)
    linear = [layer for layer in models["cosmoflow"].layers if layer.kind is LayerKind.LINEAR]
    assert [layer.output_shape for layer in linear] == [(128,), (64,), (4,)]
    assert linear[0].input_shape == (512 * 4**3,)


def test_by_default_inputs_are_those_of_the_paper():
    assert {model.name: model.input_shape for model in BUILT_IN} == {
        "resnet50": (3, 226, 226),
        "resnet152": (3, 226, 226),
        "vgg16": (3, 226, 226),
        "cosmoflow": (4, 512, 512, 512),
    }
    cosmoflow = load_model("cosmoflow")
    # Larger cubes get further blocks: what is flattened stays as large.
    assert cosmoflow.layers[-1].output_shape == (4,)
    assert max(layer.channels for layer in cosmoflow.layers[-8:]) == 512 * 4**3


@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet50", "3x2"), ("vgg16", "3x8x8"), ("cosmoflow", "4x16x16x16"), ("cosmoflow", "4x64")],
)
def test_impossible_input_shapes_are_refused(name: str, shape: str):
    with pytest.raises(InputError) as caught:
        load_model(name, input_shapes=[shape])
    assert name in caught.value.cause
    assert caught.value.remedy


def test_built_in_names():
    assert built_in("resnet50") is BUILT_IN[0]
    assert built_in("resnet51") is None
