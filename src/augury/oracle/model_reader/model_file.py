"""Models as JSON files. A file may come from anywhere, so all of it is validated."""

from __future__ import annotations

from pathlib import Path

import msgspec

from augury.core.errors import FileFormatError
from augury.core.files import load_whole, new_file
from augury.core.json_depth import bounded_depth
from augury.core.model import MAX_LAYERS, Model, ModelLayer

SCHEMA_VERSION = 1
MAX_FILE_BYTES = 256 << 20
MAX_EXTENTS = 16
"""Maximal number of extents of a shape."""
_REMEDY = "compare it with docs/oracle.md, or write it again from the model"


class _ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    schema_version: int
    model: msgspec.Raw


def save_model_file(model: Model, path: Path, *, force: bool = False) -> None:
    with new_file(path, force=force) as file:
        file.write(msgspec.json.format(encode_model(model), indent=1) + b"\n")


def load_model_file(path: Path) -> Model:
    return load_whole(path, decode_model, what="model", max_bytes=MAX_FILE_BYTES, remedy=_REMEDY)


def encode_model(model: Model) -> bytes:
    encoded: bytes = msgspec.json.encode(
        {"kind": "augury-model", "schema_version": SCHEMA_VERSION, "model": model}
    )
    return encoded


def decode_model(content: bytes) -> Model:
    try:
        file = msgspec.json.decode(bounded_depth(content), type=_ModelFile)
        if file.kind != "augury-model" or file.schema_version != SCHEMA_VERSION:
            raise FileFormatError(
                f"this is {file.kind!r} of schema {file.schema_version}, not a model of schema "
                f"{SCHEMA_VERSION}",
                remedy=_REMEDY,
            )
        document = msgspec.json.decode(file.model)
        _refuse_unknown(document)
        model = msgspec.convert(document, Model)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"this is not a model: {error}", remedy=_REMEDY) from error
    for layer in model.layers:
        _check(layer)
    return model


def _refuse_unknown(document: object) -> None:
    """Refuses unknown fields: a misspelt field would count as a missing one."""
    layers = document.get("layers") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(layers, list):
        return
    if len(layers) > MAX_LAYERS:
        raise FileFormatError(f"a model of {len(layers):,} layers", remedy=_REMEDY)
    for known, found in (
        (Model.__dataclass_fields__, [document]),
        (ModelLayer.__dataclass_fields__, layers),
    ):
        for one in found:
            for field in one if isinstance(one, dict) else ():
                if field not in known:
                    raise FileFormatError(f"unknown field {field[:80]!r}", remedy=_REMEDY)


def _check(layer: ModelLayer) -> None:
    shapes = (layer.input_shape, layer.output_shape)
    windows = {len(part) for part in (layer.kernel, layer.stride, layer.padding)}
    if max(map(len, shapes)) > MAX_EXTENTS or max(windows) > MAX_EXTENTS:
        raise FileFormatError(f"layer {layer.name[:80]!r} has too many extents", remedy=_REMEDY)
    if len(windows) != 1:
        raise FileFormatError(
            f"layer {layer.name[:80]!r} has kernel, stride and padding of different lengths",
            remedy=_REMEDY,
        )
    if 0 in layer.stride or 0 in layer.kernel or layer.groups < 1:
        raise FileFormatError(
            f"layer {layer.name[:80]!r} has a kernel, stride or groups of 0", remedy=_REMEDY
        )
