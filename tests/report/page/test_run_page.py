"""The page about a run, as text: its sections, its escaping, its policy and its size."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import augury
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.results.diagnosis import Place
from augury.core.results.wire import LinkResult, WireResult
from augury.report.page.document import script_json
from augury.report.page.run_page import write_run_page
from tests.report.conftest import HOSTILE_NAMES
from tests.report.page.contents import content_of, diagnosis_of, write_page

GOLDEN = Path(__file__).parents[2] / "golden/runs"
ATTACKS = (
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "</style></title></caption></svg><iframe src='javascript:window.hacked=1'>",
    "<!--<script>",
    "{{ 7 * 7 }}{% for x in y %}",
    "line\u2028separator\u2029",
    "javascript:window.hacked=1",
)
MAX_PAGE_BYTES = 3_000_000


def hostile_graph() -> Graph:
    builder = GraphBuilder()
    names = [*ATTACKS, *HOSTILE_NAMES]
    for _ in range(2):
        rank = builder.rank(host=ATTACKS[1])
        before: list[int] = []
        for name in names:
            stream = builder.resource(name, rank=rank)
            op = builder.op(
                name, rank=rank, resource=stream, work_ns=10_000, layer=name, after=before
            )
            builder.buffer(1_000, rank=rank, taken_by=op, layer=name)
            before = [op]
    builder.ledger.note(ATTACKS[0], ATTACKS[1], example=ATTACKS[2], remedy=ATTACKS[0])
    return builder.build()


class Reader(HTMLParser):
    """Collects elements, their attributes, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.raw.append((*self.tags[-1], data))
        else:
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", {}))


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def unpack(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """The timeline in a page: its header and columns."""
    packed = next(text for _, attrs, text in read(path).raw if attrs.get("id") == "timeline-data")
    body = zlib.decompress(base64.b64decode(packed))
    length = struct.unpack_from("<I", body)[0]
    header = json.loads(body[4 : 4 + length])
    columns, at = {}, 4 + length
    for name, number in header["columns"]:
        planes = np.frombuffer(body, np.uint8, 4 * number, at).reshape(4, number)
        columns[name] = np.ascontiguousarray(planes.T).view("<u4").ravel()
        at += 4 * number
    for name in ("lane", "start"):
        columns[name] = np.cumsum(columns[name], dtype=np.uint64).astype(np.uint32)
    return header, columns


@pytest.fixture(scope="module")
def golden_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "conv.html"
    write_page(GOLDEN / "conv-2", path)
    return path


def test_sections_of_a_recorded_run(golden_page: Path) -> None:
    tags = read(golden_page).tags
    sections = [attrs["id"] for tag, attrs in tags if tag == "section"]
    assert sections == [
        "summary", "timeline", "ranks", "layers", "collectives", "links", "memory", "what-if",
        "policies", "warnings", "measurement",
    ]  # fmt: skip
    links = [attrs["href"] for tag, attrs in tags if tag == "a" and "href" in attrs]
    assert {f"#{one}" for one in sections} <= set(links)


def test_findings_come_after_the_summary_and_have_links(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    graph = augury.synth(ranks=8, layers=4, straggler=["5:1.4"])
    write_page(graph, path, diagnosis=diagnosis_of(100_000_000), quick=True)
    reader = read(path)
    sections = [attrs["id"] for tag, attrs in reader.tags if tag == "section"]
    assert sections[:3] == ["summary", "findings", "timeline"]
    articles = [attrs["id"] for tag, attrs in reader.tags if tag == "article"]
    assert articles == ["finding-1", "finding-2"]
    text = " ".join(reader.text)
    assert "Straggler-bound: rank 5 delays every step by 18 %" in text
    assert "+18.0 %" in text
    assert "90 % interval +14.0 % to +21.0 %" in text
    # before and after, and the waterfall down to the floor
    assert all(words in text for words in ("98 ms", "82 ms", "compute floor", "49 ms"))
    assert "the recording has no events of the data loader" in text


def test_the_page_of_a_run_begins_with_its_diagnosis(tmp_path: Path) -> None:
    run = augury.open(augury.synth(ranks=8, layers=4, steps=4, straggler=["5:1.6"]))
    run.report(tmp_path / "page.html")
    reader, found = read(tmp_path / "page.html"), run.diagnose()
    assert found.findings[0].where.ranks == [5]
    text = " ".join(reader.text)
    assert found.verdict[1:] in text
    assert all(part.name in text for part in found.waterfall)
    assert all(one.title[1:] in text for one in found.findings)
    articles = [attrs["id"] for tag, attrs in reader.tags if tag == "article"]
    assert articles == [f"finding-{number + 1}" for number in range(len(found.findings))]
    tables = [attrs["id"] for tag, attrs in reader.tags if tag == "table"]
    assert tables[:2] == ["waterfall", "finding-1-step"]
    assert {"where-time-goes", "path-reasons"} <= set(tables)
    run.report(tmp_path / "quick.html", quick=True)
    quick = [attrs["id"] for tag, attrs in read(tmp_path / "quick.html").tags if tag == "section"]
    assert quick[:2] == ["summary", "timeline"]


def test_a_finding_leads_to_the_timeline_only_if_its_steps_are_there(tmp_path: Path) -> None:
    """Steps outside of recorded windows are not in the timeline."""
    diagnosis = diagnosis_of(100_000_000)
    first = msgspec.structs.replace(diagnosis.findings[0], where=Place(steps=[3, 700]))
    for steps, links in ((1, 0), (4, 1)):
        path = tmp_path / f"{steps}.html"
        graph = augury.synth(ranks=2, layers=2, steps=steps)
        changed = msgspec.structs.replace(diagnosis, findings=[first])
        write_page(graph, path, diagnosis=changed, quick=True)
        assert sum(attrs.get("class") == "show" for _, attrs in read(path).tags) == links


def test_every_picture_has_a_table(golden_page: Path) -> None:
    assert_tables_of_pictures(golden_page)


def assert_tables_of_pictures(path: Path) -> None:
    """Each section with a canvas or a chart also has a table with a caption and headers."""
    text = path.read_text(encoding="utf-8")
    sections = re.findall(r'<section id="([\w-]+)".*?</section>', text, re.S)
    for name in sections:
        section = re.search(rf'<section id="{name}".*?</section>', text, re.S)
        assert section is not None
        if "<canvas" in section[0] or 'class="chart"' in section[0]:
            assert re.search(r"<table.*?<caption>.*?<th scope=", section[0], re.S), name


def test_controls_and_charts_have_names_in_words(golden_page: Path) -> None:
    tags = read(golden_page).tags
    buttons = {attrs.get("data-do"): attrs for tag, attrs in tags if tag == "button"}
    for action in ("zoom-in", "zoom-out", "step-back", "step-on", "help"):
        assert re.fullmatch(r"[A-Z][a-z ]+", buttons[action]["aria-label"] or "")
    charts = [attrs["aria-label"] or "" for _, attrs in tags if attrs.get("class") == "chart"]
    assert [name.split(";")[0] for name in charts] == [
        "Utilization over the window",
        "Memory over the window",
        "Gradients released by backward, and arrived, since the start of backward",
    ]


def test_nothing_is_loaded_and_only_hashed_scripts_run(golden_page: Path) -> None:
    assert_self_contained(golden_page)


def assert_self_contained(path: Path) -> None:
    """The page loads nothing, and its policy allows only its own scripts and styles."""
    reader = read(path)
    policy = next(
        attrs["content"] or ""
        for tag, attrs in reader.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    inline = [(tag, text) for tag, attrs, text in reader.raw if not attrs.get("type")]
    assert {tag for tag, _ in inline} == {"script", "style"}
    for _, text in inline:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    for tag, attrs in reader.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert "src" not in attrs
        assert not [name for name in attrs if name.startswith("on") or name == "style"]
        assert (attrs.get("href") or "#").startswith("#")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    diagnosis = diagnosis_of(100_000_000, name=ATTACKS[0])
    write_page(hostile_graph(), path, diagnosis=diagnosis)
    reader = read(path)
    known = {
        "html", "head", "meta", "title", "style", "body", "a", "header", "div", "span", "h1", "nav",
        "button", "main", "section", "h2", "h3", "p", "dl", "dt", "dd", "small", "table", "caption",
        "thead", "tbody", "tr", "th", "td", "svg", "rect", "article", "code", "details", "summary",
        "kbd", "input", "output", "canvas", "ul", "li", "figure", "strong", "br", "footer", "pre",
        "script",
    }  # fmt: skip
    assert {tag for tag, _ in reader.tags if not tag.startswith("/")} <= known
    assert sum(tag == "script" for tag, _ in reader.tags) == 5
    data = next(text for _, attrs, text in reader.raw if attrs.get("id") == "page-data")
    assert json.loads(data)
    assert not set("<>&\u2028\u2029") & set(data)
    assert ATTACKS[0] in " ".join(reader.text)


@pytest.mark.parametrize("text", [*ATTACKS, *HOSTILE_NAMES[:-1]])
def test_data_of_scripts_decodes_to_what_it_was(text: str) -> None:
    encoded = script_json({"name": text})
    assert json.loads(encoded) == {"name": text}
    assert not set("<>&\u2028\u2029") & set(encoded)


def test_the_timeline_shows_measured_and_replayed_lanes(golden_page: Path) -> None:
    header, columns = unpack(golden_page)
    lanes = {(source, rank) for source, rank, _ in header["lanes"]}
    assert lanes == {(0, -1), (1, 0), (1, 1), (2, 0), (2, 1)}
    # Four recorded steps of two windows stand next to each other, without the time between.
    measured = [mark for mark in header["steps"] if mark[0] == 1]
    assert sorted({mark[2] for mark in measured}) == [10, 11, 18, 19]
    assert header["windowEndNs"] < 200_000_000
    end = columns["start"].astype(np.int64) + columns["dur"]
    assert int(end.max()) * header["unitNs"] + header["originNs"] <= header["windowEndNs"]
    assert len(columns["flowFrom"]) > 0
    assert (columns["look"] >> 8 & 1).any()
    for lane in range(len(header["lanes"])):
        own = columns["lane"] == lane
        assert (np.diff(columns["start"][own].astype(np.int64)) >= 0).all()


def test_ranks_of_a_trace_are_those_of_the_graph_in_their_order(tmp_path: Path) -> None:
    """Ranks 1 and 2 of a trace are ranks 0 and 1 of its graph if rank 0 left no record."""
    content = content_of(GOLDEN / "conv-2", quick=True)
    trace = content.trace
    assert trace is not None
    moved = trace.evolve(
        **{
            name: type(table)(**dict(table.columns()) | {"rank": table.rank + 1})
            for name, table in (
                ("events", trace.events),
                ("streams", trace.streams),
                ("steps", trace.steps),
            )
        }
    )
    write_run_page(content, tmp_path / "usual.html")
    write_run_page(replace(content, trace=moved), tmp_path / "moved.html")
    usual, _ = unpack(tmp_path / "usual.html")
    other, _ = unpack(tmp_path / "moved.html")
    assert other["lanes"] == usual["lanes"]
    assert other["steps"] == usual["steps"]


def test_recorded_traffic_is_shown(tmp_path: Path) -> None:
    link = LinkResult(
        src=0, dst=1, num_messages=12_345, size_bytes=10**9, payload_bytes=10**9,
        attributed_bytes=10**9, rate_bytes_per_s=125e6, shortest_delay_ns=50_000, busy_ns=1,
        refused_pct=None, retransmits=0, use_over_step_pct=[0.0, 50.0, 100.0],
    )  # fmt: skip
    wire = WireResult(
        num_messages=1, payload_bytes=1, attributed_pct=97.5, bytes_by_kind={},
        num_equal_connections=1, num_whole_connections=1, processes=[], connections=[],
        links=[link], collectives=[], time_of_collectives=None, ledger=[],
    )  # fmt: skip
    content = replace(content_of(augury.synth(ranks=2, layers=2), quick=True), wire=wire)
    write_run_page(content, tmp_path / "page.html")
    text = " ".join(read(tmp_path / "page.html").text)
    assert all(words in text for words in ("12,345", "1 GB", "125 MB/s", "50 us", "97.5 %"))


def test_a_page_of_eight_ranks_with_5000_operations_is_small(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    # 3 operations of each layer and a collective of each bucket on each rank
    graph = augury.synth(ranks=8, layers=1_630, jitter=0.05, bucket="1MiB", straggler=["5:1.2"])
    assert graph.num_ops >= 8 * 4_950
    written = write_page(graph, path, quick=True)
    assert written.num_slices >= graph.num_ops
    assert written.size_bytes == path.stat().st_size <= MAX_PAGE_BYTES


def test_larger_timelines_are_sampled(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    graph = augury.synth(ranks=8, layers=5_500, jitter=0.3)
    written = write_page(graph, path, quick=True)
    assert written.num_timeline_ops > 130_000
    assert written.num_slices < written.num_timeline_ops
    assert path.stat().st_size <= MAX_PAGE_BYTES
    assert "are shown as" in " ".join(read(path).text)
    header, columns = unpack(path)
    # The sum of merged operations is that of all: none is dropped.
    assert int(columns["count"].sum()) == written.num_timeline_ops
    assert len(header["ranks"]) == 8


def test_identical_ranks_share_their_lanes(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    written = write_page(augury.synth(ranks=200, layers=6), path, quick=True)
    header, _ = unpack(path)
    assert len(header["ranks"]) == 200
    assert header["classes"] == header["detailed"] == [0]
    assert written.num_slices < 100
    assert "200 ranks form 1 class of identical ranks" in " ".join(read(path).text)


def test_a_graph_without_steps_or_names_has_a_page(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.op("", rank=builder.rank(), work_ns=5)
    write_page(builder.build(), tmp_path / "page.html")
    assert "Replayed step" in " ".join(read(tmp_path / "page.html").text)


def test_very_long_times_have_a_page(tmp_path: Path) -> None:
    builder = GraphBuilder()
    for _ in range(20):
        rank = builder.rank()
        stream = builder.resource("compute", rank=rank)
        builder.op("long", rank=rank, resource=stream, work_ns=2**42, step=0)
    write_page(builder.build(), tmp_path / "page.html")
    header, columns = unpack(tmp_path / "page.html")
    assert header["windowEndNs"] == 2**42
    assert int(columns["dur"].max()) * header["unitNs"] == pytest.approx(2**42, rel=1e-6)
