"""Pages in a real browser: reading, zooming, selecting, searching, themes, links."""

from __future__ import annotations

from pathlib import Path

import pytest

import augury
from tests.report.page.browser import Browser, missing
from tests.report.page.contents import diagnosis_of, write_page
from tests.report.page.test_answer_pages import ANSWERS
from tests.report.page.test_run_page import ATTACKS, hostile_graph

pytestmark = [pytest.mark.more, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

CANVAS = "#timeline-canvas"
SHIFT = "\ue008"
INK = """
const canvas = document.querySelector("#timeline-canvas");
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
const seen = new Set();
for (let i = 0; i < pixels.length; i += 4) {
  seen.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
}
return seen.size;
"""
DRAWN_COLOURS = """
return [...document.querySelectorAll(".chart canvas")].map((canvas) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] === 255) seen.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  }
  return seen.size;
});
"""
PAPER = "getComputedStyle(document.body).backgroundColor"


def shown_ns(browser: Browser) -> tuple[float, float]:
    """The part of the timeline in view, which the address follows."""
    browser.wait("location.hash.startsWith('#t=')")
    browser.js("return new Promise((done) => setTimeout(done, 350))")
    start, end = browser.js("location.hash").removeprefix("#t=").split("&")[0].split("-")
    return float(start), float(end)


def selected(browser: Browser) -> str:
    return str(browser.js("document.querySelector('#timeline-selected').textContent"))


def found(browser: Browser) -> str:
    return str(browser.js("document.querySelector('#timeline-found').textContent"))


def press(browser: Browser, *keys: str) -> None:
    for key in keys:
        browser.type(CANVAS, key)


def visit_sections(browser: Browser) -> None:
    """Scrolls to each section and waits until it has been painted."""
    painted = "return new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
    for section in browser.js("[...document.querySelectorAll('section')].map((one) => one.id)"):
        browser.js(f"document.getElementById('{section}').scrollIntoView(); return 0")
        browser.js(painted)


def assert_clean(browser: Browser, page: Path) -> None:
    """No message on the console, and no request but the page's own."""
    assert browser.console() == []
    assert set(browser.requests()) <= {page.resolve().as_uri()}


def test_a_page_opens_from_a_file_without_errors_or_requests(
    window: Browser, recorded: Path
) -> None:
    window.open(recorded)
    assert window.js(INK) > 8
    visit_sections(window)
    window.wait("document.querySelectorAll('.chart .uplot').length === 3")
    assert window.js("document.querySelectorAll('.chart').length") == 3
    assert_clean(window, recorded)


@pytest.mark.parametrize(("answer", "charts"), [("diff", 1), ("schedule", 1), ("oracle", 3)])
def test_pages_of_answers_draw_their_charts(
    window: Browser, tmp_path: Path, answer: str, charts: int
) -> None:
    page = tmp_path / "page.html"
    ANSWERS[answer]().save_page(page)
    for scheme in ("light", "dark"):
        window.prefer(scheme)
        for width in (360, 1300):
            window.resize(width, 900)
            window.open(page)
            assert window.js("document.documentElement.scrollWidth") <= width
    visit_sections(window)
    window.wait(f"document.querySelectorAll('.chart .uplot').length === {charts}")
    drawn = window.js(DRAWN_COLOURS)
    assert len(drawn) == charts
    assert min(drawn) > 4
    assert_clean(window, page)


def test_keys_zoom_move_and_select(window: Browser, recorded: Path) -> None:
    window.open(recorded)
    press(window, "w")
    first = shown_ns(window)
    press(window, "w", "w")
    closer = shown_ns(window)
    assert closer[1] - closer[0] < 0.5 * (first[1] - first[0])
    press(window, "d")
    assert shown_ns(window)[0] > closer[0]
    press(window, "0", "Down")
    assert "critical path" in selected(window)
    before = selected(window)
    press(window, "Right")
    assert selected(window) != before
    press(window, "Enter")
    closest = shown_ns(window)
    assert closest[1] - closest[0] < 0.2 * (first[1] - first[0])
    press(window, "Escape")
    assert selected(window) == "Nothing is selected."
    press(window, "]")
    assert window.js("document.querySelector('#said').textContent").startswith("step ")
    press(window, "?")
    assert window.js("!document.querySelector('#timeline-help').hidden")
    assert_clean(window, recorded)


def test_the_mouse_zooms_moves_and_selects(window: Browser, recorded: Path) -> None:
    window.open(recorded)
    window.js(f"document.querySelector('{CANVAS}').scrollIntoView({{block: 'center'}}); return 0")
    y = 60
    box = window.js(
        f"const r = document.querySelector('{CANVAS}').getBoundingClientRect();"
        " return [r.left, r.top, r.width]"
    )
    window.wheel(CANVAS, box[0] + 700, box[1] + y, -400)
    zoomed = shown_ns(window)
    window.mouse(CANVAS, ("down", 700, y), ("move", 600, y), ("up", 500, y))
    moved = shown_ns(window)
    assert moved[0] > zoomed[0]
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0], abs=4)
    window.mouse(CANVAS, ("down", 500, y), ("move", 600, y), ("up", 700, y), modifier=SHIFT)
    ranged = shown_ns(window)
    share = 200 / (box[2] - min(230, 0.2 * box[2]))
    assert ranged[1] - ranged[0] == pytest.approx(share * (moved[1] - moved[0]), rel=0.05)
    window.click('[data-do="fit"]')
    window.js(f"document.querySelector('{CANVAS}').scrollIntoView({{block: 'center'}}); return 0")
    window.mouse(CANVAS, ("down", 320, 34), ("up", 320, 34))
    assert "critical path" in selected(window)
    # a click on a rank closes it
    rows = "document.querySelector('#timeline-space').style.height"
    height = window.js(rows)
    window.mouse(CANVAS, ("down", 60, 24 + 22 + 10), ("up", 60, 24 + 22 + 10))
    assert float(window.js(rows)[:-2]) < float(height[:-2])
    assert_clean(window, recorded)


def test_search_finds_operations_layers_and_ranks(window: Browser, diagnosed: Path) -> None:
    window.open(diagnosed)
    press(window, "/")
    window.type("#timeline-search", "gradients")
    number = int(found(window).split()[0])
    assert number > 0
    window.type("#timeline-search", "Enter")
    assert found(window) == f"1 of {number}"
    assert "gradients" in selected(window)
    press(window, "n")
    assert found(window) == f"2 of {number}"
    window.type("#timeline-search", "Escape")
    assert found(window) == ""
    window.type("#timeline-search", "conv3")
    assert int(found(window).split()[0]) > 0
    window.type("#timeline-search", "Escape")
    window.type("#timeline-search", "rank 6")
    assert found(window) == "rank 6"
    window.type("#timeline-search", "Escape")
    window.type("#timeline-search", "no such name")
    assert found(window) == "0 found"
    assert_clean(window, diagnosed)


def test_links_lead_to_a_finding_and_to_a_moment(window: Browser, diagnosed: Path) -> None:
    window.open(diagnosed, "#finding-2")
    top = window.js("document.querySelector('#finding-2').getBoundingClientRect().top")
    assert 0 <= top < 900
    assert window.js("document.querySelector('#finding-2').matches(':target')")
    window.open(diagnosed, "#t=20000000-30000000")
    press(window, "d")
    start, end = shown_ns(window)
    assert end - start == 10_000_000
    assert start == 22_000_000
    press(window, "0", "Down", "Right")
    shown_ns(window)
    link = window.js("location.hash")
    assert "&slice=" in link
    words = selected(window)
    window.open(diagnosed, link)
    assert selected(window) == words
    # from a finding to the timeline
    window.open(diagnosed)
    window.click(".show")
    assert window.js("document.activeElement.id") == "timeline-canvas"
    assert_clean(window, diagnosed)


def test_tables_sort_and_show_all_rows(window: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(augury.synth(ranks=60, layers=4, jitter=0.2), page, quick=True)
    window.open(page)
    rows = (
        "[...document.querySelectorAll('#rank-table tbody tr')].map((r) => r.cells[0].textContent)"
    )
    assert len(window.js(rows)) == 20
    window.click('[data-more="rank-table"]')
    assert sorted(map(int, window.js(rows))) == list(range(60))
    window.click("#rank-table th:first-child .sort")
    assert [int(one) for one in window.js(rows)] == list(range(59, -1, -1))
    window.click("#rank-table th:first-child .sort")
    assert [int(one) for one in window.js(rows)] == list(range(60))
    header = "document.querySelector('#rank-table th').getAttribute('aria-sort')"
    assert window.js(header) == "ascending"
    assert_clean(window, page)


def test_dark_and_light(window: Browser, recorded: Path) -> None:
    window.open(recorded)
    light = window.js(PAPER)
    assert light == "rgb(255, 255, 255)"
    window.prefer("dark")
    window.wait(f"{PAPER} !== {light!r}")
    dark = window.js(PAPER)
    # the reader's choice wins over the system's
    window.click("#theme")
    assert window.js(PAPER) == light
    window.click("#theme")
    assert window.js(PAPER) == dark
    corner = (
        f"[...document.querySelector('{CANVAS}').getContext('2d')"
        ".getImageData(2, 2, 1, 1).data].slice(0, 3).join(', ')"
    )
    assert f"rgb({window.js(corner)})" == dark
    assert_clean(window, recorded)


def test_a_thousand_ranks_are_usable(window: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    graph = augury.synth(ranks=1_000, layers=40, jitter=0.1, straggler=["700:1.5"])
    written = write_page(graph, page, quick=True)
    assert written.size_bytes <= 3_000_000
    window.open(page)
    # Only the visible rows are drawn, on a canvas of the size of its box.
    assert window.js(f"document.querySelector('{CANVAS}').clientHeight") <= 640
    assert window.js("parseFloat(document.querySelector('#timeline-space').style.height)") > 20_000
    window.type("#timeline-search", "rank 700")
    window.wait("document.querySelector('#timeline-lanes').scrollTop > 10000")
    press(window, "Down", "Down")
    assert "rank700" in selected(window)
    assert window.js("document.querySelectorAll('#rank-table tbody tr').length") == 20
    assert window.js("document.querySelector('#rank-table tbody td').textContent") == "700"
    press(window, "e", "w", "w")
    assert window.js(INK) > 4
    assert_clean(window, page)
    # The lanes in view are printed, not the empty space of all others.
    printed = window.print()
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") < 10


def test_a_hostile_trace_injects_nothing(window: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    diagnosis = diagnosis_of(100_000_000, name=ATTACKS[0])
    write_page(hostile_graph(), page, diagnosis=diagnosis)
    window.open(page)
    window.js(f"document.querySelector('{CANVAS}').scrollIntoView(); return 0")
    press(window, "Down", "Right", "Down", "Down", "Down")
    for attack in ATTACKS[:3]:
        window.js(
            "const box = document.querySelector('#timeline-search'); box.value = arguments[0];"
            " box.dispatchEvent(new Event('input')); return 0",
            attack.split("\u2028")[0],
        )
        press(window, "n")
    assert window.js("window.hacked === undefined")
    assert window.js("document.querySelectorAll('img, iframe, object').length") == 0
    assert window.js("document.querySelectorAll('script').length") == 5
    assert_clean(window, page)


def test_the_policy_stops_scripts_that_are_not_ours(window: Browser, recorded: Path) -> None:
    window.open(recorded)
    window.js(
        "const script = document.createElement('script'); script.textContent = 'window.hacked = 1';"
        " document.body.append(script);"
        " const image = document.createElement('img'); image.src = 'https://example.com/x.png';"
        " document.body.append(image); return 0"
    )
    assert window.js("window.hacked === undefined")
    assert all("Content Security Policy" in line for line in window.console())
