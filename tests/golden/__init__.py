"""Recorded runs with the predictions that must not change: see README.md."""
