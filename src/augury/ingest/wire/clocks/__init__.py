"""Clocks of ranks from messages alone."""
