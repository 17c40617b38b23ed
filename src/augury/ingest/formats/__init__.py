"""Readers of trace formats and rank records, one file per format."""
