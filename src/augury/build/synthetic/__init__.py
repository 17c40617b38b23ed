"""Synthetic training runs."""
