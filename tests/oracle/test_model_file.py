from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augury.core.errors import AuguryError, FileFormatError, InputError
from augury.core.model import LayerKind, Model, ModelLayer
from augury.oracle.model_reader.model_file import (
    decode_model,
    encode_model,
    load_model_file,
    save_model_file,
)
from augury.oracle.model_reader.read_model import load_model

MODEL = Model(
    name="two",
    input_shape=(3, 8, 8),
    layers=(
        ModelLayer(
            name="conv",
            kind=LayerKind.CONVOLUTION,
            input_shape=(3, 8, 8),
            output_shape=(4, 8, 8),
            kernel=(3, 3),
            stride=(1, 1),
            padding=(1, 1),
            num_parameters=112,
            forward_flops=13_824,
            backward_flops=13_824,
            saved_items=7,
            backward_transient_items=256,
            forward_s=1e-6,
        ),
        ModelLayer(
            name="fc", kind=LayerKind.LINEAR, input_shape=(256,), output_shape=(10,), update_s=2e-6
        ),
    ),
)


def document(**layer: object) -> bytes:
    content = json.loads(encode_model(MODEL))
    content["model"]["layers"][0] |= layer
    return json.dumps(content).encode()


def test_a_model_file_round_trips(tmp_path: Path):
    path = tmp_path / "model.json"
    save_model_file(MODEL, path)
    assert load_model_file(path) == MODEL
    assert load_model(str(path)) == MODEL
    with pytest.raises(AuguryError, match="exists"):
        save_model_file(MODEL, path)


def test_most_fields_of_a_layer_are_optional():
    content = json.dumps(
        {
            "kind": "augury-model",
            "schema_version": 1,
            "model": {
                "name": "by hand",
                "input_shape": [4],
                "layers": [
                    {"name": "a", "kind": "linear", "input_shape": [4], "output_shape": [2]}
                ],
            },
        }
    )
    assert decode_model(content.encode()).layers[0].num_parameters == 0


@pytest.mark.parametrize(
    "layer",
    [
        {"num_parameters": -1},
        {"num_parameters": 2**63},
        {"num_parameters": 1.5},
        {"num_parameters": None},
        {"kind": "sorcery"},
        {"name": 7},
        {"input_shape": [3, "x"]},
        {"input_shape": [1] * 17},
        {"kernel": [3]},
        {"stride": [0, 0]},
        {"kernel": [0, 0]},
        {"groups": 0},
        {"forward_s": -1},
        {"forward_s": 1e300},
        {"backward_transient_items": -5},
        {"num_parametres": 5},
    ],
)
def test_hostile_layers_are_refused(layer: dict):
    with pytest.raises(InputError) as caught:
        decode_model(document(**layer))
    assert caught.value.remedy


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind": "augury-plan", "schema_version": 1, "model": {}}',
        b'{"kind": "augury-model", "schema_version": 2, "model": {}}',
        b'{"kind": "augury-model", "schema_version": 1, "model": []}',
        b'{"kind": "augury-model", "schema_version": 1, "model": {"layers": 3}}',
        b'{"kind": "augury-model", "schema_version": 1, "model": {"layers": [3]}}',
        b'{"kind": "augury-model", "schema_version": 1, "model": '
        b'{"name": "none", "input_shape": [], "layers": []}}',
        encode_model(MODEL)[:-20],
        encode_model(MODEL).replace(b'"two"', b'"two", "evil": 1'),
    ],
)
def test_hostile_files_are_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.json"):
        load_model_file(path)


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="cannot read"):
        load_model_file(tmp_path / "none.json")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_are_refused(content: bytes):
    with pytest.raises(FileFormatError):
        decode_model(content)
