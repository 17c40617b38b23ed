"""Imports numpy without the threads of its linear algebra library."""

from __future__ import annotations

import os

_VARIABLE = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """The threads would cost more CPU time than a small replay, and Augury multiplies no matrices.
    The variable is removed again, so that child processes do not inherit it."""
    if _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_VARIABLE]
