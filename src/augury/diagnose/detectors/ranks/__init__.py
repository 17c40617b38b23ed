"""Detectors that compare ranks with each other."""
