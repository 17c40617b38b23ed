"""Parallel strategies in closed form, one file each."""
