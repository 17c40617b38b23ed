"""What profilers and our recorder wrote, read as one Trace."""
