"""Alignment of the clocks of ranks."""
