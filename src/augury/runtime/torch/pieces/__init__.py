"""Sends the pieces of a plan in PyTorch training: memory, order, arrival and updates."""
