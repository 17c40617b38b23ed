"""Detectors of causes of slow training, and comparison of runs and predictions."""
