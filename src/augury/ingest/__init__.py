"""What profilers and our recorder wrote, read as one Trace."""

from augury.ingest.run import open_run

__all__ = ["open_run"]
