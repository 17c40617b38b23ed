"""Parallel strategies as small real programs on torch.distributed: one file each."""
