"""Collectives of each rank, and their matching across ranks."""
