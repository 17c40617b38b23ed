"""Pages in a real browser: nothing is cut or covered, on screens of any width and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import augury
from tests.report.page.browser import Browser, missing
from tests.report.page.contents import diagnosis_of, write_page
from tests.report.page.test_in_browser import CANVAS, PAPER, assert_clean, press

pytestmark = [pytest.mark.more, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

KEEP_LABELS = """
window.labels = [];
window.inks = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const place = this.getTransform();
  const name = this.canvas.closest(".chart")?.id ?? this.canvas.id;
  const [left, top] = [place.e + x, place.f + y];
  window.labels.push([name, text, left, top, this.measureText(text).width]);
  const behind = [...this.getImageData(left - 2, top, 1, 1).data].slice(0, 3);
  const ink = [1, 3, 5].map((i) => parseInt(String(this.fillStyle).slice(i, i + 2), 16));
  window.inks.push([name, text, ink, behind]);
  return fill.apply(this, arguments);
};
"""
"""Keeps the text on canvases: id of the chart or canvas, text, position and width; and
its colour with that behind it."""


@pytest.fixture
def labelled(window: Browser) -> Iterator[Browser]:
    """The browser keeps the text that is drawn on canvases."""
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = window.devtools(command, source=KEEP_LABELS)["identifier"]
    yield window
    window.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=added)


@pytest.mark.parametrize("width", [360, 700, 1300, 2200])
def test_nothing_overflows(window: Browser, recorded: Path, diagnosed: Path, width: int) -> None:
    window.resize(width, 900)
    for page in (recorded, diagnosed):
        window.open(page)
        assert window.js("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [400, 1300])
def test_long_names_do_not_overflow(window: Browser, tmp_path: Path, width: int) -> None:
    page = tmp_path / "page.html"
    diagnosis = diagnosis_of(110_000_000, name="N" * 100_000)
    write_page(augury.synth(ranks=2, layers=2), page, diagnosis=diagnosis, quick=True)
    window.resize(width, 900)
    window.open(page)
    assert window.js("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [800, 1300])
def test_the_contents_are_whole_and_do_not_cover_a_section(
    window: Browser, diagnosed: Path, width: int
) -> None:
    window.resize(width, 900)
    window.open(diagnosed, "#layers")
    nav = "const nav = document.querySelector('.top nav'); return "
    assert window.js(f"{nav} nav.scrollWidth <= nav.clientWidth")
    title = "document.querySelector('h1').scrollWidth <= document.querySelector('h1').clientWidth"
    assert window.js(title)
    top = "document.querySelector('#layers-title').getBoundingClientRect().top"
    bottom = "document.querySelector('.top').getBoundingClientRect().bottom"
    assert window.js(top) >= window.js(bottom)


@pytest.mark.parametrize("width", [400, 700, 1300])
def test_ticks_of_time_are_as_far_apart_as_they_say(
    labelled: Browser, recorded: Path, width: int
) -> None:
    labelled.resize(width, 900)
    labelled.open(recorded)
    for chart in ("link-chart", "memory-chart", "policy-chart"):
        labelled.js(f"document.getElementById('{chart}').scrollIntoView(); return 0")
        labelled.wait(f"window.labels.some(([name, text]) => name === '{chart}')")
        ticks = [
            (x, float(text.split()[0]))
            for name, text, x, _, _ in labelled.js("window.labels")
            if name == chart and text.endswith("ms")
        ]
        (first_x, first), *others = sorted(set(ticks))
        assert others
        slope = (others[-1][1] - first) / (others[-1][0] - first_x)
        for x, value in others:
            assert value == pytest.approx(first + slope * (x - first_x), rel=0.02), ticks


def test_collectives_that_waited_have_their_names(labelled: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    # Rank 1 makes rank 0 wait in each of the buckets.
    graph = augury.synth(ranks=2, layers=8, bucket="50MiB", straggler=["1:2"])
    write_page(graph, page, quick=True)
    labelled.open(page)
    labelled.wait("window.labels.length > 0")
    drawn = {tuple(one) for one in labelled.js("window.labels")}
    names = [text for _, text, *_ in drawn if text.startswith("gradients.")]
    # on both ranks, and where it is there on the critical path
    assert set(names) == {"gradients.6-7", "gradients.0-5"}
    assert all(names.count(name) >= 2 for name in names)


def luminance(colour: list[int]) -> float:
    parts = [value / 255 for value in colour]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_of_the_timeline_can_be_read(labelled: Browser, recorded: Path, scheme: str) -> None:
    """The contrast that WCAG 2 asks of text, level AA."""
    labelled.prefer(scheme)
    labelled.open(recorded)
    labelled.wait("window.inks.length > 0")
    for name, text, ink, behind in labelled.js("window.inks"):
        if name == CANVAS[1:]:
            dark, light = sorted((luminance(ink), luminance(behind)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ink, behind)


def test_no_label_of_the_ruler_is_cut(labelled: Browser, recorded: Path) -> None:
    labelled.open(recorded)
    press(labelled, "w", *("d",) * 12)
    labelled.wait("window.labels.length > 0")
    width = labelled.js(f"document.querySelector('{CANVAS}').clientWidth")
    ruler = [one for one in labelled.js("window.labels") if one[0] and one[3] == 9]
    assert len(ruler) > 20
    assert [one for one in ruler if one[2] + one[4] > width] == []


def test_a_page_prints_light_and_without_controls(window: Browser, recorded: Path) -> None:
    window.prefer("dark")
    window.open(recorded)
    printed = window.print()
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") > 1
    window.prefer("dark", media="print")
    hidden = "getComputedStyle(document.querySelector('.tools')).display === 'none'"
    assert window.js(hidden)
    assert window.js(PAPER) == "rgb(255, 255, 255)"
    assert_clean(window, recorded)


def test_charts_shrink_to_the_paper(window: Browser, recorded: Path) -> None:
    window.open(recorded)
    window.js("document.getElementById('memory').scrollIntoView(); return 0")
    window.wait("document.querySelector('#memory-chart canvas')")
    window.prefer("light", media="print")
    # Paper is narrower at once, before a chart can be drawn anew.
    narrow = (
        "const box = document.getElementById('memory-chart'); box.style.width = '500px';"
        " return box.querySelector('canvas').getBoundingClientRect().width"
    )
    assert window.js(narrow) <= 500


def test_closed_parts_and_cut_tables_show_on_paper(window: Browser, diagnosed: Path) -> None:
    window.open(diagnosed)
    closed = "document.querySelectorAll('main details:not([open])').length"
    before = window.js(closed)
    assert before > 0
    window.js("window.dispatchEvent(new Event('beforeprint')); return 0")
    assert window.js(closed) == 0
    window.js("window.dispatchEvent(new Event('afterprint')); return 0")
    assert window.js(closed) == before
    rest = "getComputedStyle(document.querySelector('[data-rest]')).display"
    assert window.js(rest) == "none"
    window.prefer("light", media="print")
    assert window.js(rest) == "block"
    assert window.js("document.querySelector('[data-rest=\"layer-table\"]').textContent") == (
        "The first 20 of 24 rows; the HTML page has all."
    )
    window.click("#layer-table th:first-child .sort")
    assert window.js("document.querySelector('[data-rest=\"layer-table\"]') === null")
