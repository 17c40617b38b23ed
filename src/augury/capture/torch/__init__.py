"""Recorder of PyTorch: implements the protocols of ``capture/framework.py``."""
