"""Reads recorded runs and traces of other profilers as one Trace."""

from augury.ingest.open_run import open_run

__all__ = ["open_run"]
