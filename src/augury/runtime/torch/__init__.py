"""Follows a Plan inside PyTorch training."""
