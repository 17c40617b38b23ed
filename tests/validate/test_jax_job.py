"""A job of another framework, recorded unmodified."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.validate.jax_job import PYTHON, jax_checks, payload_of_ring

from augury.capture.wire.preload import wire_library
from augury.core.errors import UsageError


def _has_recorder() -> bool:
    try:
        return bool(wire_library())
    except UsageError:
        return False


def test_payload_of_a_ring_is_computed():
    assert payload_of_ring([100, 24], 3) == 2 * 124 * 3


@pytest.mark.skipif(not PYTHON.exists(), reason="needs make env-jax")
@pytest.mark.skipif(not _has_recorder(), reason="needs the wire recorder")
def test_every_byte_of_a_jax_job_is_accounted_for(tmp_path: Path):
    checks = {check.case: check for check in jax_checks(tmp_path / "jax", again=True)}
    for case in ("not-received", "unattributed", "all-reduces-off"):
        assert checks[f"jax/bytes/{case}"].holds, checks
    assert checks["jax/all-reduces-not-inferred"].value is not None
