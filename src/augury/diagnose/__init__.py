"""Comparison of runs with each other and with predictions; detectors are to come."""
