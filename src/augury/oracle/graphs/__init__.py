"""Graphs of strategies: the shared program of a step, its memory, and replay of a sweep."""
