"""What profilers and our recorder wrote, read as one Trace."""

from augury.ingest.open_run import open_run

__all__ = ["open_run"]
