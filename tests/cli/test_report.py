import json
from pathlib import Path

from tests.cli.conftest import Runner


def test_the_viewer_is_named(run: Runner, graph_path: Path, tmp_path: Path) -> None:
    outcome = run("report", graph_path, "-o", "t.json")
    assert outcome.code == 0
    assert "ui.perfetto.dev" in outcome.out
    assert json.loads((tmp_path / "t.json").read_text())["otherData"]["title"] == "run.augury"


def test_json(run: Runner, graph_path: Path) -> None:
    document = json.loads(run("report", graph_path, "-o", "t.json", "--json").out)
    assert document["schema_version"] == 1
    assert document["path"] == "t.json"
    assert document["cut_at_ns"] is None


def test_omitted_events_are_reported(run: Runner, graph_path: Path) -> None:
    outcome = run("report", graph_path, "-o", "t.json", "--max-events", "3")
    assert outcome.code == 0
    assert "left out" in outcome.out


def test_table(run: Runner, graph_path: Path, tmp_path: Path) -> None:
    outcome = run("report", graph_path, "-o", "t.parquet")
    assert outcome.code == 0
    assert (tmp_path / "t.parquet").read_bytes()[:4] == b"PAR1"


def test_format_must_be_known(run: Runner, graph_path: Path) -> None:
    outcome = run("report", graph_path, "-o", "t.txt")
    assert outcome.code == 2
    assert ".parquet" in outcome.err


def test_page(run: Runner, graph_path: Path, tmp_path: Path) -> None:
    outcome = run("report", graph_path, "-o", "t.html")
    assert outcome.code == 0
    assert "open it in a browser" in outcome.out
    text = (tmp_path / "t.html").read_text()
    assert "<title>run.augury - Augury</title>" in text
    assert 'id="what-if-table"' in text
    verdict = json.loads(run("diagnose", graph_path, "--json").out)["verdict"]
    assert verdict[1:] in text, "the page capitalizes the first letter"
    assert 'id="findings"' in text
    again = run("report", graph_path, "-o", "t.html", "--quick", "--json", "--force")
    assert json.loads(again.out)["size_bytes"] == (tmp_path / "t.html").stat().st_size
    quick = (tmp_path / "t.html").read_text()
    assert 'id="what-if-table"' not in quick
    assert 'id="findings"' not in quick


def test_an_existing_page_is_kept(run: Runner, graph_path: Path, tmp_path: Path) -> None:
    (tmp_path / "t.html").write_text("mine")
    assert run("report", graph_path, "-o", "t.html").code == 2
    assert (tmp_path / "t.html").read_text() == "mine"
