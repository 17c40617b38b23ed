"""Detectors of time that passes within steps or in some of them."""
