"""Replayed timelines, shared with the tests of reports."""

from tests.report.conftest import hostile, one_link, straggling, with_servers

__all__ = ["hostile", "one_link", "straggling", "with_servers"]
