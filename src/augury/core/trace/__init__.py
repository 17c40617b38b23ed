"""The Trace, its rules and its files."""
