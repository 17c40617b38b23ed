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

MAX_OBJECTS = 2_000_000
"""Larger objects are not checked: it would take longer than a second."""
_CODE = (types.BuiltinFunctionType, types.ModuleType, type)
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
    _num_objects = 0

    def persistent_id(self, value: Any) -> Any:
        self._num_objects += 1
        if self._num_objects > MAX_OBJECTS:
            raise ValueError(f"it has more than {MAX_OBJECTS} objects")
        if isinstance(value, torch.Tensor):
            return "tensor", id(value), value._version
        if isinstance(value, _CODE) or (isinstance(value, types.FunctionType) and not _kept(value)):
            return "code", id(value)
        if type(value).__module__.startswith("numpy") and hasattr(value, "__array_interface__"):
            return "array", id(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            return _kept, (_kept(value),)  # the variables that it keeps are shared, too
        kind = type(value)
        is_numpy = kind.__module__.startswith("numpy.random")
        if isinstance(value, _GENERATORS) or (is_numpy and kind.__name__ in _NUMPY_GENERATORS):
            raise _OwnGeneratorError
        return NotImplemented


def _kept(function: Any) -> list[Any]:
    """Returns the variables that a function keeps between calls."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _has_content(cell)]
    return [*cells, *(function.__defaults__ or ())]


def _has_content(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
