"""Parallel strategies, one file each: the closed form, and the graph of a step beside it."""
