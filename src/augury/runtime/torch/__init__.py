"""Applies a Plan inside PyTorch training."""
