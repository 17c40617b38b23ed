"""Applies a Plan inside real training: parts without a framework, and one folder per framework."""
