"""Replayed timelines, shared with the tests of reports."""

from tests.report.conftest import hostile, straggling, with_servers

__all__ = ["hostile", "straggling", "with_servers"]
