"""Applies a Plan inside real training: one folder or file per framework."""
