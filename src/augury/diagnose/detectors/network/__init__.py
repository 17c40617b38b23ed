"""Detectors of slow communication."""
