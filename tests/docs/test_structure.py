"""Rules about the package as a whole that neither ruff nor import-linter checks."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.docs.layout_page import PACKAGE

MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400


def _num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_a_class_name_is_defined_once():
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_is_long():
    assert [path for path in MODULES if _num_lines(path) > MAX_LINES] == []
