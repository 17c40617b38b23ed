"""Collectives of each rank, and which of them are one across ranks."""
