"""Alignment of clocks by messages."""
