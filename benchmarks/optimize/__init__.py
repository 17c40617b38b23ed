"""Benchmarks of the search over combinations of changes."""
