"""The document that all pages share: base template, style, scripts and content-security policy.

A document is one file that loads nothing: scripts and styles are inline and allowed by their hash.
Text is escaped by jinja2; data for scripts is JSON in which no character can end its element.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from augury.core.files import new_file
from augury.report.page.tables import Section
from augury.report.safe_text import safe

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = "augury.report.page"
SCRIPTS = (
    "format.js",
    "tables.js",
    "charts.js",
    "timeline-data.js",
    "timeline-rows.js",
    "timeline-draw.js",
    "timeline-panel.js",
    "timeline-widget.js",
    "timeline-input.js",
    "page.js",
)
"""Our own scripts, in the order in which they build on each other; they share one scope."""

_UNSAFE_IN_SCRIPT = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


@dataclass(frozen=True, slots=True)
class Inline:
    """An inline script or style with the source expression that allows it."""

    text: str

    @property
    def allowed_as(self) -> str:
        digest = hashlib.sha256(self.text.encode("utf-8")).digest()
        return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def write_document(
    title: str, sections: Sequence[Section], path: Path, *, force: bool = False
) -> int:
    """Writes a page and returns its size in bytes."""
    text = render_document(title, sections).encode("utf-8")
    with new_file(path, force=force) as file:
        file.write(text)
    return len(text)


def render_document(title: str, sections: Sequence[Section]) -> str:
    """Renders a page. Sections appear in the given order, and in its table of contents."""
    scripts = [Inline(_asset("uplot/uPlot.iife.min.js")), Inline(_own_script())]
    theme = Inline(_asset("theme.js"))
    styles = [Inline(_asset("uplot/uPlot.min.css")), Inline(_asset("page.css"))]
    data = {
        "tables": {table.id: table.hidden for section in sections for table in section.tables},
        "charts": {name: chart for section in sections for name, chart in section.charts.items()},
    }
    template = _environment().get_template("base.html")
    return template.render(
        title=safe(title),
        policy=_policy([theme, *scripts], styles),
        theme=theme,
        scripts=scripts,
        styles=styles,
        sections=sections,
        data=script_json(data),
        uplot_licence=_asset("uplot/LICENSE"),
    )


def script_json(value: Any) -> str:
    """JSON that stays inside of its script element, whatever the strings are."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for char, escaped in _UNSAFE_IN_SCRIPT.items():
        text = text.replace(char, escaped)
    return text


def _policy(scripts: Sequence[Inline], styles: Sequence[Inline]) -> str:
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(one.allowed_as for one in scripts)}",
            f"style-src {' '.join(one.allowed_as for one in styles)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _own_script() -> str:
    parts = [_asset(name) for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();\n"


@cache
def _asset(name: str) -> str:
    return (files(ASSETS) / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(ASSETS, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
