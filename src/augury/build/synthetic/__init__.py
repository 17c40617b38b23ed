"""Synthetic training runs as graphs."""
