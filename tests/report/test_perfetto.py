import gzip
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from augury.core.errors import UsageError
from augury.core.timeline import Timeline
from augury.report.perfetto import Written, write_perfetto

Event = dict[str, Any]


def written(timeline: Timeline, path: Path, **options: Any) -> tuple[Written, dict[str, Any]]:
    result = write_perfetto(timeline, path, **options)
    return result, json.loads(path.read_text("ascii"), parse_float=Decimal)


def events(trace: dict[str, Any], phase: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def ns(value: Decimal) -> int:
    exact = value * 1000
    assert exact == int(exact)
    return int(exact)


@pytest.fixture(params=["straggling", "with_servers", "one_link", "hostile"])
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return request.getfixturevalue(request.param)


def test_every_operation_is_there_to_the_nanosecond(timeline: Timeline, tmp_path: Path) -> None:
    result, trace = written(timeline, tmp_path / "t.json")
    ops = [e for e in events(trace, "X") if "step" in e["args"] or "critical_path" in e["args"]]
    ends = {e["args"]["op"]: ns(e["ts"]) + ns(e["dur"]) for e in ops}
    assert ends == dict(enumerate(timeline.end_ns.tolist()))
    assert result.num_events == len(trace["traceEvents"])
    assert result.num_ops_left_out == 0
    assert result.cut_at_ns is None


def test_slices_of_a_track_do_not_overlap(timeline: Timeline, tmp_path: Path) -> None:
    _, trace = written(timeline, tmp_path / "t.json")
    tracks = defaultdict(list)
    for event in events(trace, "X"):
        tracks[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["dur"])))
    for slices in tracks.values():
        slices.sort()
        for (start, dur), (following, _) in pairwise(slices):
            assert following >= start + dur


def test_tracks_and_processes_have_names(timeline: Timeline, tmp_path: Path) -> None:
    _, trace = written(timeline, tmp_path / "t.json")
    meta = events(trace, "M")
    processes = {e["pid"]: e["args"]["name"] for e in meta if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in meta if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events(trace, "X")} <= threads
    assert {e["pid"] for e in trace["traceEvents"]} <= set(processes)
    assert len({tid for _, tid in threads}) == len(threads)
    first = min((e for e in meta if e["name"] == "process_sort_index"), key=_order)
    assert processes[first["pid"]] == "critical path"


def _order(event: Event) -> int:
    return int(event["args"]["sort_index"])


def test_every_arrow_has_both_ends(timeline: Timeline, tmp_path: Path) -> None:
    _, trace = written(timeline, tmp_path / "t.json")
    starts = {e["id"]: e for e in events(trace, "s")}
    finishes = {e["id"]: e for e in events(trace, "f")}
    assert starts
    assert starts.keys() == finishes.keys()
    for number, start in starts.items():
        assert start["ts"] <= finishes[number]["ts"]
        assert (start["name"], start["cat"]) == (
            finishes[number]["name"],
            finishes[number]["cat"],
        )
        assert start["tid"] != finishes[number]["tid"]


def test_concurrent_operations_have_lanes(one_link: Timeline, tmp_path: Path) -> None:
    _, trace = written(one_link, tmp_path / "t.json")
    meta = events(trace, "M")
    shared = next(e["pid"] for e in meta if e["args"].get("name") == "shared")
    lanes = {e["args"]["name"] for e in meta if e["pid"] == shared and e["name"] == "thread_name"}
    assert lanes == {"backbone", "backbone #2", "backbone #3"}


def test_waiting_of_gangs_is_shown_separately(straggling: Timeline, tmp_path: Path) -> None:
    _, trace = written(straggling, tmp_path / "t.json")
    waiting = [e for e in events(trace, "X") if e["cat"] == "waiting"]
    waited = {e["args"]["before_op"] for e in waiting}
    assert waited
    assert set(straggling.graph.ops.rank[list(waited)].tolist()) == {0, 1, 2, 3, 4, 6, 7}


def test_critical_path_is_a_track_and_a_colour(straggling: Timeline, tmp_path: Path) -> None:
    _, trace = written(straggling, tmp_path / "t.json")
    path = [e for e in events(trace, "X") if e["cat"] == "critical path"]
    assert sum(ns(e["dur"]) for e in path) == straggling.critical_path.dur_ns.sum()
    marked = {e["args"]["op"] for e in events(trace, "X") if "critical_path" in e["args"]}
    assert marked == set(straggling.critical_path.op.tolist())
    coloured = {e["args"]["op"] for e in events(trace, "X") if e.get("cname") == "terrible"}
    assert coloured == marked


def test_memory_reaches_its_peak(straggling: Timeline, tmp_path: Path) -> None:
    _, trace = written(straggling, tmp_path / "t.json")
    peaks: dict[int, int] = defaultdict(int)
    for event in events(trace, "C"):
        rank = event["pid"] - 1
        peaks[rank] = max(peaks[rank], event["args"]["bytes"])
    assert peaks == {peak.rank: peak.size_bytes for peak in straggling.peak_memory}


def test_a_cut_is_stated_and_clean(straggling: Timeline, tmp_path: Path) -> None:
    result, trace = written(straggling, tmp_path / "t.json", max_events=100)
    about = trace["otherData"]
    ops = [e for e in events(trace, "X") if "step" in e["args"]]
    assert result.cut_at_ns is not None
    assert about["cut_at_ns"] == result.cut_at_ns
    assert about["num_ops_left_out"] == straggling.graph.num_ops - len(ops)
    assert len(trace["traceEvents"]) - len(events(trace, "M")) <= 100
    shown = {e["args"]["op"] for e in ops}
    early = (straggling.start_ns < result.cut_at_ns).nonzero()[0].tolist()
    assert shown == set(early)


def test_arrows_are_omitted_first_and_counted(straggling: Timeline, tmp_path: Path) -> None:
    whole, trace = written(straggling, tmp_path / "t.json")
    num_flows = len(events(trace, "s"))
    room = whole.num_events - len(events(trace, "M")) - 2 * num_flows
    less, trace = written(straggling, tmp_path / "u.json", max_events=room + 2 * 5)
    assert less.cut_at_ns is None
    assert len(events(trace, "s")) == 5
    assert less.num_flows_left_out == num_flows - 5


def test_compressed_files_have_the_same_content(straggling: Timeline, tmp_path: Path) -> None:
    write_perfetto(straggling, tmp_path / "t.json")
    write_perfetto(straggling, tmp_path / "t.json.gz")
    with gzip.open(tmp_path / "t.json.gz") as file:
        assert file.read() == (tmp_path / "t.json").read_bytes()


def test_hostile_names_are_escaped(hostile: Timeline, tmp_path: Path) -> None:
    _, trace = written(hostile, tmp_path / "t.json")
    names = {e["name"] for e in events(trace, "X")}
    assert "\\x1b[31mred\\x1b[0m" in names
    for name in names:
        assert name.isprintable()
        assert len(name) <= 400


def test_does_not_overwrite(straggling: Timeline, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("mine")
    with pytest.raises(UsageError):
        write_perfetto(straggling, tmp_path / "t.json")
    assert (tmp_path / "t.json").read_text() == "mine"
