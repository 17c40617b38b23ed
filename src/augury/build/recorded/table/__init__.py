"""Graphs of tables of operations."""
