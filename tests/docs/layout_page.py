"""Tables of ``docs/layout.md``: every file of the package with the first sentence of its docstring.

    python -m tests.docs.layout_page

writes them anew. Text outside of the tables is kept.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/layout.md"
PACKAGE = ROOT / "src/augury"


def first_sentence(path: Path) -> str:
    """Returns the first sentence of a module's docstring, on one line, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)(?<!et al\.)\s", paragraph, maxsplit=1)[0]
    return re.sub(r"`{2}", "`", sentence).rstrip(".:;").replace("|", "\\|")


def table(folder: str) -> str:
    """Files of a folder of the package; files of a subfolder stand together, below its own line."""
    root = PACKAGE / folder
    lines = ["| file | |", "|---|---|"]
    paths = root.rglob("*.py") if folder else root.glob("*.py")
    for path in sorted(paths, key=lambda path: (path.parent != root, path)):
        name = path.relative_to(root).as_posix()
        if name == "__init__.py":
            continue
        if path.name == "__init__.py":
            name = f"{path.parent.relative_to(root).as_posix()}/"
        lines.append(f"| `{name}` | {first_sentence(path)} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The document with its tables made anew."""

    def section(found: re.Match[str]) -> str:
        return f"{found[1]}{table(found[2] or '')}\n"

    return re.sub(r"(### (?:`(\w+)/`|Files outside the folders)\n)(?:\|.*\n)*", section, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
