"""Devices and the levels of network between them; presets, files and fits."""
