"""A browser, and pages to open in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import augury
from tests.report.page.browser import Browser, chromium
from tests.report.page.contents import diagnosis_of, write_page

GOLDEN = Path(__file__).parents[2] / "golden/runs"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def window(browser: Browser) -> Browser:
    """The browser at its usual size, with a light theme."""
    browser.resize(1300, 900)
    browser.prefer("light")
    return browser


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "recorded.html"
    write_page(GOLDEN / "conv-2", path)
    return path


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "diagnosed.html"
    graph = augury.synth(ranks=8, layers=24, jitter=0.05, straggler=["5:1.4"], steps=2)
    write_page(graph, path, diagnosis=diagnosis_of(110_000_000))
    return path
