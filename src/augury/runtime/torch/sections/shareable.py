"""Checks whether an object can be used by several processes at once, as loader workers do.

The check pickles the object without the contents of tensors and arrays: open files, connections and
locks cannot be pickled, and a random generator of its own is noticed on the way.
"""

from __future__ import annotations

import hashlib
import pickle
import random
import types
from typing import Any

import torch

_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
_GENERATORS = (random.Random, torch.Generator)
_NUMPY_GENERATORS = ("Generator", "RandomState", "BitGenerator", "PCG64", "MT19937", "Philox")


class _OwnGeneratorError(Exception):
    """The object has a random generator."""


def why_not_shareable(value: Any) -> str | None:
    """Returns why processes cannot share the object, as the end of a sentence."""
    try:
        content_digest(value)
    except _OwnGeneratorError:
        return "has a random generator of its own"
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"cannot be shared by processes: {first[:200]}"
    return None


def content_digest(value: Any) -> bytes:
    """Returns a digest of an object, with identities and versions of its tensors and arrays instead
    of their contents. Raises where processes cannot share the object."""
    sink = _Digest()
    _SharingPickler(sink, protocol=5).dump(value)
    return sink.hash.digest()


class _Digest:
    def __init__(self) -> None:
        self.hash = hashlib.blake2b()

    def write(self, content: Any) -> int:
        self.hash.update(content)
        return len(content)


class _SharingPickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return "tensor", id(value), value._version
        if type(value).__module__.startswith("numpy") and hasattr(value, "__array_interface__"):
            return "array", id(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            # The variables that a function keeps are shared, too.
            kept = [cell.cell_contents for cell in value.__closure__ or () if _has_content(cell)]
            return str, ("code",), (kept, value.__defaults__)
        if isinstance(value, _CODE):
            return str, (f"code {id(value)}",)
        kind = type(value)
        is_numpy = kind.__module__.startswith("numpy.random")
        if isinstance(value, _GENERATORS) or (is_numpy and kind.__name__ in _NUMPY_GENERATORS):
            raise _OwnGeneratorError
        return NotImplemented


def _has_content(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
