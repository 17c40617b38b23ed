"""Suffixes and limits of exported files. Imported for ``--help``, so it imports nothing."""

from __future__ import annotations

TIMELINE_SUFFIXES = (".json", ".json.gz")
TABLE_SUFFIXES = (".parquet",)
PAGE_SUFFIXES = (".html",)
PLOT_SUFFIXES = (".svg",)
JSON_SUFFIXES = (".json",)

DEFAULT_MAX_EVENTS = 1_000_000
"""About 120 MB of JSON, which viewers still open quickly."""

MAX_FLOWS = 50_000
"""Limit on arrows; more of them would cover the timeline."""
