"""Sections of the page about a run, one file each: what they show, as text and tables."""
