"""The files that results can become, and their limits; light enough to import for --help."""

from __future__ import annotations

TIMELINE_SUFFIXES = (".json", ".json.gz")
TABLE_SUFFIXES = (".parquet",)

DEFAULT_MAX_EVENTS = 1_000_000
"""Some 120 MB of JSON: what the viewers still open with pleasure."""

MAX_FLOWS = 50_000
"""Arrows; more of them hide what they should show."""
