"""Version of the JSON documents that results are encoded as."""

from __future__ import annotations

SCHEMA_VERSION = 1
