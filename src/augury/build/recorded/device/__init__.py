"""Graphs of runs on devices."""
