"""Detectors of causes of slow training, one file each."""
