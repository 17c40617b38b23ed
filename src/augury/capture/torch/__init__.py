"""Recorder of PyTorch jobs."""
