from __future__ import annotations

import pytest
from benchmarks.oracle.real_step import measure

from augury.core.enums import Phase
from augury.core.errors import InputError
from augury.core.model import LayerKind, Model, ModelLayer
from augury.oracle.memory import Optimizer, step_memory
from augury.oracle.model_reader.read_model import load_model


def layer(name: str, num_parameters: int, **counts: int) -> ModelLayer:
    return ModelLayer(
        name=name,
        kind=LayerKind.LINEAR,
        input_shape=(10,),
        output_shape=(20,),
        num_parameters=num_parameters,
        **counts,
    )


def model(*layers: ModelLayer) -> Model:
    return Model(name="made up", input_shape=(5,), layers=layers)


KNOWN = {"forward_transient_items": 3, "backward_transient_items": 40}


def test_backward_frees_activations_while_it_makes_gradients():
    made = model(
        layer("a", 100, saved_items=50, **KNOWN), layer("b", 1000, saved_items=30, **KNOWN)
    )
    few = step_memory(made, batch=1, optimizer=Optimizer.SGD)
    # With b's part given back, a's gradient weighs more.
    assert (few.phase, few.layer) == (Phase.BACKWARD, "a")
    assert few.gradient_bytes == 4 * 1100
    assert few.activation_bytes == 4 * 50
    assert few.transient_bytes == 4 * 40
    many = step_memory(made, batch=10, optimizer=Optimizer.SGD)
    assert (many.phase, many.layer) == (Phase.BACKWARD, "b")
    assert many.gradient_bytes == 4 * 1000
    assert many.activation_bytes == 4 * 10 * 80
    assert many.input_bytes == 4 * 10 * 5
    assert many.peak_bytes == 4 * (1100 + 1000 + 10 * (80 + 40 + 5))


def test_optimizer_state_is_counted():
    made = model(layer("a", 100, **KNOWN))
    by = {kind: step_memory(made, batch=1, optimizer=kind) for kind in Optimizer}
    assert [by[kind].optimizer_bytes for kind in Optimizer] == [0, 400, 800]
    # Adam needs two more of the largest while it updates it.
    assert by[Optimizer.ADAM].phase is Phase.UPDATE
    assert by[Optimizer.ADAM].transient_bytes == 800
    assert by[Optimizer.MOMENTUM].phase is Phase.BACKWARD


def test_gradients_that_are_never_freed_are_counted():
    made = model(layer("a", 10, saved_items=5, **KNOWN), layer("b", 1, saved_items=500, **KNOWN))
    given_back = step_memory(made, batch=8, optimizer=Optimizer.SGD)
    kept = step_memory(made, batch=8, optimizer=Optimizer.SGD, keeps_gradients=True)
    assert kept.peak_bytes - given_back.peak_bytes == 4 * 10


def test_half_precision_takes_half_the_bytes():
    made = model(layer("a", 100, saved_items=7))
    whole, half = (step_memory(made, batch=3, item_bytes=size) for size in (4, 2))
    assert whole.peak_bytes == 2 * half.peak_bytes


def test_without_saved_items_outputs_are_counted():
    one = step_memory(model(layer("a", 0, saved_items=7)), batch=2)
    assert one.phase is Phase.BACKWARD
    assert one.transient_bytes == 4 * 2 * (10 + 20)


def test_an_empty_batch_is_refused():
    with pytest.raises(InputError):
        step_memory(model(layer("a", 1)), batch=0)


@pytest.mark.parametrize(
    ("name", "shape", "batch", "optimizer"),
    [
        pytest.param("resnet50", "3x48x48", 16, Optimizer.MOMENTUM, marks=pytest.mark.more),
        ("resnet50", "3x32x32", 2, Optimizer.ADAM),
        pytest.param("vgg16", "3x48x48", 8, Optimizer.SGD, marks=pytest.mark.more),
    ],
)
def test_prediction_matches_a_real_step(name: str, shape: str, batch: int, optimizer: Optimizer):
    pytest.importorskip("torch")
    predicted = step_memory(
        load_model(name, input_shapes=[shape]), batch=batch, optimizer=optimizer
    )
    held = measure(name, shape, batch, optimizer)
    assert predicted.peak_bytes == pytest.approx(held.peak_bytes, rel=0.03)
