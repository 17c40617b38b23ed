"""Graphs of recorded runs."""
