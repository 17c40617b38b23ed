"""Matching of the collectives of imported traces across ranks."""
