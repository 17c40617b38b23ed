"""The documents keep their word: examples run, and nothing that exists is left out."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import msgspec
import pytest

from augury.cli.app import VERBS
from augury.cli.main import main
from augury.core.cluster import Cluster
from augury.core.graph import graph_spec
from augury.core.results import replay
from tests.docs.layout_page import first_sentence, page

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("src/augury/*/__init__.py"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _blocks(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [
        (document.name, block)
        for document in DOCUMENTS
        for block in fence.findall(document.read_text("utf-8"))
    ]


@pytest.mark.parametrize(("document", "code"), _blocks("python"))
def test_python_examples_print_what_they_say(
    document: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, document, "exec"), {})
    promised = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert said.getvalue().splitlines() == promised


def test_there_are_python_examples():
    assert {"README.md", "graph.md"} <= {document for document, _ in _blocks("python")}


@pytest.mark.parametrize(("document", "text"), _blocks("toml"))
def test_cluster_examples_load(document: str, text: str, tmp_path: Path):
    (tmp_path / document).write_text(text)
    Cluster.load(tmp_path / document)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


def test_every_verb_is_documented(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    verbs = re.findall(r"^  (\w+)  ", listed, re.MULTILINE)
    assert set(verbs) == set(VERBS)
    for verb in verbs:
        assert f"`augury {verb}" in _text("docs/cli.md")


def test_every_change_is_documented(capsys: pytest.CaptureFixture[str]):
    assert main(["whatif", "--help"]) == 0
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert len(options) >= 10
    for option in options:
        assert f"`{option}" in _text("docs/cli.md"), option


def test_every_field_of_the_result_is_documented():
    documented = _text("docs/cli.md")
    structs = [
        value
        for value in vars(replay).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    ]
    assert replay.ReplayResult in structs
    for struct in structs:
        for field in msgspec.structs.fields(struct):
            assert f"`{field.name}`" in documented, f"{struct.__name__}.{field.name}"


def test_every_rule_is_documented():
    source = ast.parse(Path(graph_spec.__file__).read_text("utf-8"))
    rules = {
        call.args[0].value
        for call in ast.walk(source)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("Violation", "_found")
        and isinstance(call.args[0], ast.Constant)
    }
    assert len(rules) > 20
    documented = set(re.findall(r"^\| [\d, ]+ \| `([a-z-]+)` \|", _text("docs/graph.md"), re.M))
    assert documented == rules


def test_every_folder_has_its_place():
    layout = _text("docs/layout.md")
    assert len(FOLDERS) >= 6
    for folder in FOLDERS:
        assert f"`{folder}/`" in layout, folder


def test_every_file_has_its_place():
    """Every folder has its table, and every table says what the files of the folder say."""
    text = _text("docs/layout.md")
    assert {f"### `{folder}/`" for folder in FOLDERS} <= set(text.splitlines())
    assert page(text) == text, "run python -m tests.docs.layout_page"


def test_every_file_says_what_it_is():
    silent = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src/augury").rglob("*.py")
        if not first_sentence(path)
    ]
    assert silent == []


def test_every_native_file_has_its_place():
    layout = _text("docs/layout.md")
    for path in (ROOT / "native").iterdir():
        assert f"`{path.name}`" in layout, path.name
