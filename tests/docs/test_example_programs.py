"""Programs of ``examples/`` print what ``examples/expected/`` says, and the notebook's cells run.

    python -m tests.docs.test_example_programs

writes the expected outputs anew.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from augury.report.answer import RunAnswer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EXPECTED = EXAMPLES / "expected"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "tour.ipynb"


def _run(name: str, scratch: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program from the checkout, as its docstring says; an import of torch fails."""
    (scratch / "torch.py").write_text("raise ImportError('examples need no torch')")
    return subprocess.run(
        [sys.executable, f"examples/{name}.py", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(scratch)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_the_expected_output(name: str, tmp_path: Path):
    done = _run(name, tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == (EXPECTED / f"{name}.txt").read_text("utf-8")


def test_every_expected_output_has_its_program():
    assert len(PROGRAMS) >= 3
    assert sorted(path.stem for path in EXPECTED.iterdir()) == PROGRAMS


def test_the_sweep_takes_a_folder_and_refuses_others(tmp_path: Path):
    done = _run("whatif_sweep", tmp_path, tmp_path / "missing")
    assert done.returncode == 1
    assert done.stderr == f"cannot read {tmp_path / 'missing'}: no such file; check the path\n"


def _code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_bytes())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_cells_of_the_notebook_run_in_order(monkeypatch: pytest.MonkeyPatch):
    """Jupyter starts in the notebook's folder and shows the value of a cell's last expression."""
    monkeypatch.chdir(EXAMPLES)
    names: dict[str, Any] = {}
    shown = []
    for number, code in enumerate(_code_cells()):
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            expression = ast.Expression(last.value)
            shown.append(eval(compile(expression, f"cell {number}", "eval"), names))
    answers = [value for value in shown if isinstance(value, RunAnswer)]
    kinds = ["ReplayAnswer", "WhatIfAnswer", "ScheduleAnswer", "DiffAnswer"]
    assert [type(answer).__name__ for answer in answers] == kinds
    for answer in answers:
        assert answer._repr_html_().startswith("<pre")


def test_the_notebook_is_kept_without_outputs():
    notebook = json.loads(NOTEBOOK.read_bytes())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


if __name__ == "__main__":
    for program in PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            written = _run(program, Path(folder))
        written.check_returncode()
        (EXPECTED / f"{program}.txt").write_text(written.stdout, encoding="utf-8")
