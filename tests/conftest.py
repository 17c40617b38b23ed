from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.capture import training_kinds
from tests.recordings import Recording, once, record_kind

_HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The same examples on every machine, however slow: a failure is a fact, not a chance.
settings.register_profile("augury", derandomize=True, deadline=None, suppress_health_check=_HEALTH)
# `make soak PART=random`: new examples each time, and how to repeat the one that fails.
settings.register_profile(
    "soak", max_examples=1_000, deadline=None, print_blob=True, suppress_health_check=_HEALTH
)
settings.load_profile("augury")

_HERE = Path(__file__).parent
_COVERED = ("core", "replay", "engines")
"""Folders whose tests are traced. The coverage of `core/` and `replay/` is gated, and these tests
reach it by themselves; tracing the others, or the collection of tests, would only cost time."""
_UNTRACED = ("test_traffic.py", "test_hostile.py", "test_equivalence.py", "test_folding.py")
"""Modules in them that replay thousands of graphs: others reach the same lines, and traced, the
reference takes ten times as long."""

_SLOW = ("test_folding.py", "test_equivalence.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thousands of random graphs come last: what breaks should show early."""
    items.sort(key=lambda item: item.path.name in _SLOW)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    coverage = _coverage(session.config)
    if coverage is not None:
        if session.config.getoption("dist", "no") == "no":  # this process runs tests itself
            _import_traced()
        coverage.pause()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    folder = item.path.relative_to(_HERE).parts[0]
    is_traced = folder in _COVERED and item.path.name not in _UNTRACED
    coverage = _coverage(item.config) if is_traced else None
    if coverage is None:
        return (yield)
    coverage.resume()
    try:
        return (yield)
    finally:
        coverage.pause()


def _coverage(config: pytest.Config) -> Any:
    """The tracer of pytest-cov, or None without `--cov`."""
    plugin = config.pluginmanager.getplugin("_cov")
    return None if plugin is None else plugin.cov_controller


def _import_traced() -> None:
    """Lines outside of functions run at the first import, which would be untraced otherwise."""
    for name in ("augury.core", "augury.replay"):
        for module in walk_packages(import_module(name).__path__, f"{name}."):
            with suppress(ImportError):  # the kernel is missing without a compiler
                import_module(module.name)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.one_at_a_time import OneAtATime

    return OneAtATime(config, log)


@pytest.fixture(autouse=True)
def _environment_is_left_alone() -> Iterator[None]:
    """A variable that a test leaves behind would change what the jobs of later tests do."""
    before = _own_variables()
    yield
    assert _own_variables() == before


def _own_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AUGURY_")}


@pytest.fixture(scope="session")
def recorded_ddp(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Two models under DDP on two ranks: accumulation, unused parameters, calls of its own; two
    windows and a calibration."""
    options = ("--steps", "4:6,8:10", "--calibrate", "--calibrate-seconds", "0")
    return once(
        tmp_path_factory, "ddp", lambda folder: record_kind(folder, training_kinds.DDP, *options)
    )


@pytest.fixture(scope="session")
def recorded_sharded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """FSDP2 and a pipeline on two ranks."""
    options = ("--steps", "2:4")
    return once(
        tmp_path_factory,
        "sharded",
        lambda folder: record_kind(folder, training_kinds.SHARDED, *options),
    )
