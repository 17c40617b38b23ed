from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from augury.capture.wire.preload import LIBRARY_VARIABLE, wire_library
from augury.core.errors import UsageError
from tests.capture.wired import build_library


@pytest.fixture(scope="session")
def wire_recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The library of the package, or one that is built for these tests."""
    try:
        yield wire_library()
    except UsageError:
        if shutil.which("gcc") is None:
            pytest.skip("the wire recorder is not built, and there is no compiler")
        with pytest.MonkeyPatch.context() as changed:
            library = build_library(tmp_path_factory.mktemp("wire"))
            changed.setenv(LIBRARY_VARIABLE, str(library))
            yield library
